"""Shards of parameter servers move: to an entitled newcomer, away from a leaving worker, away from a dead one.

    leaving worker, to all: *going* (it holds no shard any more)
    holder, to the next holder: *hand* (weights, and the pushes in them);   answer: *kept*, or *back* (not mine)
    others, to the next holder: *yours* (nothing to hand over)

Leaving workers are entitled to no shard. Not all workers hear of a change at once; so a worker that gets a push and does
not hold the shard passes it on to the holder that it knows. The new holder does not wait: it opens the shard with its own
copy, counts pushes, and when the weights come

    w  <-  the weights handed over + the pushes counted here since          (``Shard.adopt``)

A push goes to one receiver only as long as that is a member, and the giver stays until the shard is kept: so every push
counts once, whichever workers leave and whatever is under way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taut.errors import MalformedMessage, PeerLost
from taut.strategies.api import Heard, MethodAction, Note, Tell
from taut.strategies.server.server_state import ServerState
from taut.strategies.server.shard import Shard, packed, unpacked

HAND, KEPT, BACK = KINDS = ("hand", "kept", "back")
NOBODY = -1
MOST_OPENINGS = 32  # sent with a shard that moved several times


def greet(state: ServerState) -> list[MethodAction]:
    """Tell each holder *yours*, once, at the start: it may not know whether it is the first to hold its shard."""
    if state.greeted:
        return []
    state.greeted = True
    return [
        Tell(rank, Note("yours", 0, shard)) for shard, rank in enumerate(state.holders) if rank != state.membership.rank
    ]


def say_going(state: ServerState) -> list[MethodAction]:
    """Tell *going* to all workers that have not been told, if this worker leaves."""
    fresh = [other for other in state.membership.others if state.leaving and other not in state.told]
    state.told.update(fresh)
    return [Tell(other, Note("going")) for other in fresh]


def move(state: ServerState, shard: int, on_death: str, open_: Callable[[int], Shard]) -> list[MethodAction]:
    """Move the shard to the worker that is entitled to it now; if its receiver is gone, to another."""
    membership, before = state.membership, state.holders[shard]
    now = state.holders[shard] = state.entitled(shard, membership.members)
    actions: list[MethodAction] = []
    if now != before:
        if before not in membership.members and before not in state.left and on_death == "stop":
            raise PeerLost(f"worker {before}, which held the weights' shard {shard}, is gone (on_death=stop)")
        state.pulling.pop(shard, None)
        state.elections += 1
        if before == membership.rank:
            held = state.shards.pop(shard)
            actions.append(Tell(now, Note("yours", 0, shard)) if held.blank else _hand(state, shard, held))
        elif now == membership.rank:
            _, kept = state.handed.pop(shard, (NOBODY, None))
            state.shards[shard] = kept or open_(shard)
        elif shard not in state.handed:
            actions.append(Tell(now, Note("yours", 0, shard)))
    given = state.handed.get(shard)
    if given is not None and given[0] not in membership.members:
        actions.append(_hand(state, shard, given[1]))
    return actions


def _hand(state: ServerState, shard: int, held: Shard) -> Tell:
    to = state.holders[shard]
    state.handed[shard] = (to, held)
    opened = b"" if held.opened is None else held.opened.tobytes()
    openings = sorted(held.openings)[-MOST_OPENINGS:]
    numbers = [float(state.membership.version), float(bool(opened)), *map(float, openings)]
    return Tell(to, Note(HAND, 0, shard, numbers), opened + packed(held.w, held.taken))


def handed(state: ServerState, event: Heard) -> list[MethodAction]:
    shard, given = event.note.part, state.handed.get(event.note.part)
    if event.note.kind == HAND:
        return _handed(state, event)
    if given is not None and given[0] == event.sender:
        if event.note.kind == KEPT:
            del state.handed[shard]
        elif state.holders[shard] != event.sender or event.note.round < state.membership.version:
            return [_hand(state, shard, given[1])]  # to another; or again, since it knows by now
        else:
            state.handed[shard] = (NOBODY, given[1])  # until this worker knows the next holder
    return []


def _handed(state: ServerState, event: Heard) -> list[MethodAction]:
    shard, nbytes = event.note.part, state.nbytes(event.note.part)
    if not 2 <= len(event.note.numbers) <= 2 + MOST_OPENINGS or not all(
        0 <= number < 2**53 for number in event.note.numbers
    ):
        raise MalformedMessage(f"'hand' with the numbers {event.note.numbers}")
    version, provisional, *openings = event.note.numbers
    start = nbytes if provisional else 0
    state.check_finite(event.payload[: start + nbytes])
    w, table = unpacked(event.payload[start:], nbytes)
    opened = np.frombuffer(event.payload[:start], np.float32) if start else None
    held = state.shards.get(shard)
    if held is None and not state.leaving and version >= state.membership.version:
        state.keep_early(event, event.sender)  # the sender knows of a change that this worker will hear of
        return []
    if held is not None and not state.ending.closed(shard):
        held.adopt(w, opened, table, frozenset(map(int, openings)))
        held.spoke(event.sender)
    return [Tell(event.sender, Note(BACK if held is None else KEPT, int(version), shard))]
