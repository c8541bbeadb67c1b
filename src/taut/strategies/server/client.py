"""A client of the parameter servers: at most one push is under way to each server, and is kept until it is confirmed.

While a server has not confirmed a push, the worker trains on and pushes nothing more to it: base stays, and x - base, the
sum of all steps since, is the next push. So never more than one message waits for a server.

When members change, an unconfirmed push is sent again, to the same server or, if that is gone, to the present holder of
the shard. Pushes are numbered, and the weights of a shard move together with the numbers of the pushes in them; a push
that is sent *again* waits until these weights have come. So each push counts once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taut.errors import MalformedMessage
from taut.strategies.api import Heard, MethodAction, Note, Tell, Vector
from taut.strategies.delivery.copies import HeldCopy, Written
from taut.strategies.server.server_state import Pulling, Pushed, ServerState
from taut.strategies.server.shard import unpacked

if TYPE_CHECKING:
    Serve = Callable[[Pushed, int], list[MethodAction]]  # add a push of our own to a shard that we hold


def push(state: ServerState, steps: int, serve: Serve) -> list[MethodAction]:
    """Push the change of each shard with at least ``steps`` steps, if its last push was confirmed."""
    actions: list[MethodAction] = []
    sent = False
    for shard, rank in enumerate(state.holders):
        if state.unpushed[shard] < steps or shard in state.pushing or shard in state.handed or state.blank(shard):
            continue
        part = state.part(shard)
        change = _written(state, shard, state.local.x[part] - state.base[part])
        state.base[part] = state.local.x[part] if not state.coders else state.base[part] + state.change(shard, change)
        state.numbers[shard] += 1
        numbers = [state.rate, float(state.numbers[shard]), float(state.membership.version), 0.0]
        pushed = Pushed(rank, Note("push", state.unpushed[shard], shard, numbers), change)
        state.unpushed[shard], sent = 0, True
        actions += _post(state, shard, pushed, serve)
    state.pushes += sent
    return actions


def _written(state: ServerState, shard: int, change: Vector) -> bytes:
    """Return the change as it is pushed. What the codec leaves out stays in x - base, for the next push."""
    return state.coders[shard].difference(change) if state.coders else change.tobytes()


def _post(state: ServerState, shard: int, pushed: Pushed, serve: Serve) -> list[MethodAction]:
    own = pushed.to == state.membership.rank
    if own and (state.shards[shard].complete or not pushed.again):
        return serve(pushed, shard)
    state.pushing[shard] = pushed
    return [] if own else [Tell(pushed.to, pushed.note, pushed.payload)]


def push_again(state: ServerState, shard: int, serve: Serve) -> list[MethodAction]:
    """Send an unconfirmed push again: members changed, and it may have been lost on its way."""
    before = state.pushing.pop(shard, None)
    if before is None:
        return []
    rate, number, _, _ = before.note.numbers
    note = Note("push", before.note.round, shard, [rate, number, float(state.membership.version), 1.0])
    to = before.to if before.to in state.membership.others else state.holders[shard]
    return _post(state, shard, Pushed(to, note, before.payload), serve)


def push_own(state: ServerState, serve: Serve) -> list[MethodAction]:
    """Send repeated pushes to this worker itself once the weights, which may contain them, are here or moved."""
    own = [shard for shard, pushed in state.pushing.items() if pushed.to == state.membership.rank]
    ready = [shard for shard in own if shard not in state.shards or state.shards[shard].complete]
    return [action for shard in ready for action in push_again(state, shard, serve)]


def confirmed(state: ServerState, shard: int, number: int) -> None:
    """Forget the push of this number: the shard contains it."""
    pushed = state.pushing.get(shard)
    if pushed is not None and pushed.number == number:
        del state.pushing[shard]


def ask(state: ServerState) -> list[MethodAction]:
    actions: list[MethodAction] = []
    for shard, rank in enumerate(state.holders):
        if shard in state.pulling or shard in state.handed or state.blank(shard):
            continue  # a pull is under way, or impossible
        pulling = state.pulling[shard] = Pulling(rank, state.base[state.part(shard)].copy())
        if rank == state.membership.rank:
            held = state.shards[shard]
            pulling.answer, pulling.table = unpacked(held.pull(rank), held.w.nbytes)
        else:
            has = [state.pulled.setdefault(shard, HeldCopy()).stamp] if state.coders else []
            actions.append(Tell(rank, Note("pull", 0, shard, has)))
    return actions


def answered(state: ServerState, event: Heard) -> None:
    """Note the weights that a server sent."""
    shard, nbytes = event.note.part, state.nbytes(event.note.part)
    pulling = state.pulling.get(shard)
    asked = pulling is not None and pulling.asked == event.sender
    if not state.coders:
        w, table = unpacked(event.payload, nbytes)
    else:
        stamp, coded = _stamp(event)
        _, table = unpacked(event.payload[coded:], 0)
        if not asked:
            return  # its next pull says that it has not taken this over
        sent = Written(event.payload[:coded], stamp, event.note.kind == "weights")
        w = state.pulled.setdefault(shard, HeldCopy()).read(sent, nbytes, state.coders[shard])
    if pulling is not None and asked:
        pulling.answer, pulling.table = w, table


def _stamp(event: Heard) -> tuple[float, int]:
    """Return the stamp of a compressed answer, and how many bytes the codec wrote."""
    numbers = event.note.numbers
    if len(numbers) != 2 or not all(0 <= number < 2**53 for number in numbers) or numbers[1] > len(event.payload):
        raise MalformedMessage(f"{event.note.kind!r} with the numbers {numbers}")
    return numbers[0], int(numbers[1])


def include(state: ServerState) -> None:
    """Add the pulled weights to x: x <- the answer + what the answer does not contain; unpushed steps stay unpushed."""
    for shard in [shard for shard, pulling in state.pulling.items() if pulling.answer is not None]:
        pulling = state.pulling.pop(shard)
        assert pulling.answer is not None
        part = state.part(shard)
        move = pulling.answer - pulling.mark
        state.local.x[part] += move
        state.base[part] += move
        state.known[shard] = pulling.table
        state.fresh.discard(shard)
        state.pulls += 1


@dataclass(frozen=True)
class Push:
    """A *push*, or one *passed* on: origin, number, its sender's version of the members, whether it was sent before."""

    origin: int
    number: int
    version: int
    again: bool


def read_push(state: ServerState, event: Heard) -> Push:
    """Return the push in a message. Raise ``MalformedMessage`` if it is none."""
    note, passed = event.note, event.note.kind == "passed"
    if len(note.numbers) != 4 + passed or not all(0 <= number < 2**53 for number in note.numbers):
        raise MalformedMessage(f"{note.kind!r} with the numbers {note.numbers}")
    if state.coders:
        state.coders[note.part].check(event.payload, state.nbytes(note.part) // 4)
    else:
        state.check_nbytes(event)
    _, number, version, again, origin = (*note.numbers, float(event.sender))[:5]
    return Push(int(origin), int(number), int(version), bool(again))


def pass_on(state: ServerState, event: Heard, push: Push) -> Tell:
    """Return the push for the worker that holds the shard, as far as this one knows."""
    note, version = event.note, float(state.membership.version)
    numbers = [note.numbers[0], float(push.number), version, float(push.again), float(push.origin)]
    return Tell(state.holders[note.part], Note("passed", note.round, note.part, numbers), event.payload)
