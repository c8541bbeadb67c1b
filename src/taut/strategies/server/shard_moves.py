"""Shards of parameter servers move: to a newcomer that is entitled to them, from one that leaves in order, from the dead.

    leaver, to all: *going* (it holds nothing any more)
    holder, to the next one: *hand* (weights, and what is in them);   answer: *kept*, or *back* (it is not mine)
    others, to the next one: *yours* (I have nothing to hand over)

All count those who leave out when they see who is entitled to a shard. Not all know of it at once; so who is sent a push
and does not hold the shard passes it on to whom it knows to. The new holder does not wait: it opens the shard with what
it knows, counts what is pushed, and when the weights come

    w  <-  what was handed over + what was counted here since          (``Shard.adopt``)

A push takes one way only while the one that it was sent to is there, and the giver stays until the shard is kept: so
every push counts once, whoever leaves, and whatever the others had under way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taut.core.messages import Note
from taut.errors import MalformedMessage, PeerLost
from taut.strategies.api import Heard, MethodAction, Tell
from taut.strategies.server.server_state import ServerState
from taut.strategies.server.shard import Shard, packed, unpacked

HAND, KEPT, BACK = KINDS = ("hand", "kept", "back")
NOBODY = -1
MOST_OPENINGS = 32  # that go along with a shard: of moments in which it moved, and moved again


def greet(state: ServerState) -> list[MethodAction]:
    """Once, at the start: a server may not know whether it is the first to hold its shard."""
    if state.greeted:
        return []
    state.greeted = True
    return [Tell(rank, Note("yours", 0, shard)) for shard, rank in enumerate(state.holders) if rank != state.place.rank]


def say_going(state: ServerState) -> list[MethodAction]:
    """To all who have not been told that this worker leaves, if it does."""
    fresh = [other for other in state.place.others if state.leaving and other not in state.told]
    state.told.update(fresh)
    return [Tell(other, Note("going")) for other in fresh]


def move(state: ServerState, shard: int, on_death: str, open_: Callable[[int], Shard]) -> list[MethodAction]:
    """The shard to whoever is entitled to it now; and to another one, if who was to get it is gone."""
    place, before = state.place, state.holders[shard]
    now = state.holders[shard] = state.entitled(shard, place.members)
    actions: list[MethodAction] = []
    if now != before:
        if before not in place.members and before not in state.left and on_death == "stop":
            raise PeerLost(f"worker {before}, which held the weights' shard {shard}, is gone (on_death=stop)")
        state.pulling.pop(shard, None)
        state.elections += 1
        if before == place.rank:
            held = state.shards.pop(shard)
            actions.append(Tell(now, Note("yours", 0, shard)) if held.blank else _hand(state, shard, held))
        elif now == place.rank:
            _, kept = state.handed.pop(shard, (NOBODY, None))
            state.shards[shard] = kept or open_(shard)
        elif shard not in state.handed:
            actions.append(Tell(now, Note("yours", 0, shard)))
    given = state.handed.get(shard)
    if given is not None and given[0] not in place.members:
        actions.append(_hand(state, shard, given[1]))
    return actions


def _hand(state: ServerState, shard: int, held: Shard) -> Tell:
    to = state.holders[shard]
    state.handed[shard] = (to, held)
    opened = b"" if held.opened is None else held.opened.tobytes()
    openings = sorted(held.openings)[-MOST_OPENINGS:]
    numbers = [float(state.place.version), float(bool(opened)), *map(float, openings)]
    return Tell(to, Note(HAND, 0, shard, numbers), opened + packed(held.w, held.taken))


def handed(state: ServerState, event: Heard) -> list[MethodAction]:
    """One of ``KINDS`` came."""
    shard, given = event.note.part, state.handed.get(event.note.part)
    if event.note.kind == HAND:
        return _handed(state, event)
    if given is not None and given[0] == event.sender:
        if event.note.kind == KEPT:
            del state.handed[shard]
        elif state.holders[shard] != event.sender or event.note.round < state.place.version:
            return [_hand(state, shard, given[1])]  # to another; or that one will see that it is its own by now
        else:
            state.handed[shard] = (NOBODY, given[1])  # until we know who else there is
    return []


def _handed(state: ServerState, event: Heard) -> list[MethodAction]:
    shard, nbytes = event.note.part, state.nbytes(event.note.part)
    if not 2 <= len(event.note.numbers) <= 2 + MOST_OPENINGS or not all(
        0 <= number < 2**53 for number in event.note.numbers
    ):
        raise MalformedMessage(f"'hand' with the numbers {event.note.numbers}")
    version, provisional, *openings = event.note.numbers
    start = nbytes if provisional else 0
    w, table = unpacked(event.payload[start:], nbytes)
    opened = np.frombuffer(event.payload[:start], np.float32) if start else None
    held = state.shards.get(shard)
    if held is None and not state.leaving and version >= state.place.version:
        state.keep_early(event, event.sender)  # its sender knows of somebody who goes or is gone, and this worker will
        return []
    if held is not None and not state.ending.closed(shard):
        held.adopt(w, opened, table, frozenset(map(int, openings)))
        held.spoke(event.sender)
    return [Tell(event.sender, Note(BACK if held is None else KEPT, int(version), shard))]
