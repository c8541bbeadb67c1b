"""A worker and its parameter servers: one push at a time is under way to each, and stays in mind until it was taken.

Where a server is slow to confirm, or cannot be heard, the worker trains on and pushes nothing meanwhile: base stays, and
x - base grows into the next push, which is the sum. So what waits for a server is never more than one message.

When the one that a push was sent to is gone, it is sent again to who holds the shard now. Pushes are numbered, and the
weights of a shard go from hand to hand with the numbers of those that are in them: each counts once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.method import Heard, MethodAction, Tell
from taut.strategies.serving import Pulling, Pushed, Serving
from taut.strategies.shard import unpacked

if TYPE_CHECKING:
    Serve = Callable[[Pushed, int], list[MethodAction]]  # count this push of ours for the shard, which is our own


def push(state: Serving, steps: int, serve: Serve) -> list[MethodAction]:
    """Push what ``steps`` steps or more have changed, wherever the last push was taken."""
    actions: list[MethodAction] = []
    sent = False
    for shard, rank in enumerate(state.holders):
        if state.unpushed[shard] < max(1, steps) or shard in state.pushing:
            continue
        part = state.part(shard)
        change = (state.local.x[part] - state.base[part]).tobytes()
        state.base[part] = state.local.x[part]
        state.numbers[shard] += 1
        numbers = [state.rate, float(state.numbers[shard]), float(state.place.version)]
        pushed = Pushed(rank, Note("push", state.unpushed[shard], shard, numbers), change)
        state.unpushed[shard], sent = 0, True
        actions += _post(state, shard, pushed, serve)
    state.pushes += sent
    return actions


def _post(state: Serving, shard: int, pushed: Pushed, serve: Serve) -> list[MethodAction]:
    if pushed.to == state.place.rank:
        return serve(pushed, shard)
    state.pushing[shard] = pushed
    return [Tell(pushed.to, pushed.note, pushed.payload)]


def doubtful(state: Serving, shard: int, before: int) -> bool:
    """Whether the push that is under way may not get to who holds the shard now. ``before``: who did, when members last
    changed. It does if the one that it was sent to is there, and passes it on: sent again, it could overtake the weights
    that it is in. (One who held the shard, gave it away and has it again may have passed it on in vain.)"""
    pushed, members = state.pushing.get(shard), state.place.members
    if pushed is None:
        return False
    gone = pushed.to not in members or before not in members
    return gone or (pushed.to == state.holders[shard] and pushed.note.numbers[2] < state.place.version)


def push_again(state: Serving, shard: int, serve: Serve) -> list[MethodAction]:
    """Who had it is gone. If the one that holds the shard now got it by another way, it knows."""
    before = state.pushing.pop(shard)
    rate, number, _ = before.note.numbers
    note = Note("push", before.note.round, shard, [rate, number, float(state.place.version)])
    return _post(state, shard, Pushed(state.holders[shard], note, before.payload), serve)


def confirmed(state: Serving, shard: int, number: int) -> None:
    """The push of that number is in the shard."""
    pushed = state.pushing.get(shard)
    if pushed is not None and pushed.number == number:
        del state.pushing[shard]


def ask(state: Serving) -> list[MethodAction]:
    """Pull all shards."""
    actions: list[MethodAction] = []
    for shard, rank in enumerate(state.holders):
        if shard in state.pulling:
            continue  # still under way: asking again would not make it faster
        pulling = state.pulling[shard] = Pulling(rank, state.base[state.part(shard)].copy())
        if rank == state.place.rank:
            held = state.shards[shard]
            pulling.answer, pulling.table = unpacked(held.pull(rank), held.w.nbytes)
        else:
            actions.append(Tell(rank, Note("pull", 0, shard)))
    return actions


def answered(state: Serving, event: Heard) -> None:
    """A server's weights came."""
    shard = event.note.part
    w, table = unpacked(event.payload, state.nbytes(shard))
    pulling = state.pulling.get(shard)
    if pulling is not None and pulling.asked == event.sender:
        pulling.answer, pulling.table = w, table


def include(state: Serving) -> None:
    """x <- the answer + what the answer does not contain; what was not pushed yet stays so."""
    for shard in [shard for shard, pulling in state.pulling.items() if pulling.answer is not None]:
        pulling = state.pulling.pop(shard)
        assert pulling.answer is not None
        part = state.part(shard)
        move = pulling.answer - pulling.mark
        state.local.x[part] += move
        state.base[part] += move
        state.known[shard] = pulling.table
        state.pulls += 1


def check_push(state: Serving, event: Heard) -> tuple[int, int, int]:
    """Of a *push*, or one that was *passed* on: whose, its number, and the version of the members that it was sent in."""
    note, passed = event.note, event.note.kind == "passed"
    if len(note.numbers) != 3 + passed or not all(0 <= number < 2**53 for number in note.numbers):
        raise MalformedMessage(f"{note.kind!r} with the numbers {note.numbers}")
    if len(event.payload) != state.nbytes(note.part):
        raise MalformedMessage(f"{len(event.payload)} bytes for shard {note.part} of {state.nbytes(note.part)}")
    number, version = int(note.numbers[1]), int(note.numbers[2])
    return int(note.numbers[3]) if passed else event.sender, number, version


def change_of(pushed: Pushed) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.frombuffer(pushed.payload, np.float32)
