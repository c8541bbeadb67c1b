"""Parameter server, Downpour: workers push what their optimizer changed and pull the server's weights, at their own pace.

    server   w <- w + scale remedy(d_i)  for every push; see ``staleness.py``
    worker   every ``push`` steps: push d_i = x - (x at its last push)
             every ``pull`` steps: x <- w + what it has not pushed yet

Nobody waits: a pull is answered while the worker trains on, and included at the end of a step. The weights are cut into
``shards``, held by the first workers beside their training (their communication thread serves them).

When a server dies, the next worker entitled to its shard takes it over from its own copy (``on_death=elect``: what it had
not pulled yet is lost), or all stop and save their models (``on_death=stop``). At the end each server, when all have told
it that they ended, sends its weights to all: replicas end with the same bits.
Paper: Dean et al. 2012, "Large Scale Distributed Deep Networks" (Downpour SGD).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from taut.core.events import Ended
from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse, PeerLost
from taut.strategies.method import (
    Draining,
    Finished,
    Heard,
    Leaving,
    Local,
    Method,
    MethodAction,
    MethodEvent,
    Place,
    Placed,
    Proceed,
    Stepped,
    Tell,
    check_whole,
)
from taut.strategies.server_ending import ServerEnding
from taut.strategies.serving import Pulling, Serving
from taut.strategies.shard import Shard, bounds, holder
from taut.strategies.staleness import KINDS, Remedy

if TYPE_CHECKING:
    from taut.strategies.method import Vector

EARLY = 64  # messages at most that wait for the members that they tell of


@dataclass(frozen=True)
class Server(Method):
    """``--strategy server:shards=2,push=4,pull=4,staleness=rate``. ``scale``: of what is pushed; 1 is the paper's, under
    which p workers move the weights p times as fast, and late pushes act as momentum on top. The default, 0, takes
    1/sqrt(p), the tether's gain. ``lambda0``: of the dc kinds, 0 for the paper's.

    >>> Server(shards=2).push, Server(staleness="dc").staleness
    (1, 'dc')
    """

    name: ClassVar[str] = "server"
    paper: ClassVar[str] = "Dean et al. 2012"
    consensus: ClassVar[bool] = True
    concurrent: ClassVar[bool] = True
    lockstep: ClassVar[bool] = False
    directed: ClassVar[bool] = True
    topologies: ClassVar[tuple[str, ...]] = ("star", "complete")

    shards: int = 1
    push: int = 1
    pull: int = 1
    staleness: str = "rate"
    scale: float = 0.0
    lambda0: float = 0.0
    on_death: str = "elect"

    def __post_init__(self) -> None:
        for name in ("shards", "push", "pull"):
            check_whole(self, name, 1)
        if self.staleness not in KINDS:
            raise Misuse(f"server: staleness={self.staleness}", "one of " + ", ".join(KINDS))
        for name in ("scale", "lambda0"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise Misuse(f"server: {name}={getattr(self, name):g}", "a number of at least 0", "0 takes the default")
        if self.on_death not in ("elect", "stop"):
            raise Misuse(f"server: on_death={self.on_death}", "elect or stop")

    def start(self, place: Place, local: Local) -> Serving:
        holders = [holder(shard, self.shards, place.members) for shard in range(self.shards)]
        state = Serving(local, place, local.x.copy(), holders, ServerEnding(self.shards, place))
        for shard, rank in enumerate(holders):
            if rank == place.rank:
                self._open(state, shard)
        return state

    def on(self, state: Serving, event: MethodEvent, now: float) -> list[MethodAction]:
        actions: list[MethodAction] = []
        match event:
            case Stepped(samples, rate):
                self._stepped(state, samples, rate, actions)
                actions.append(Proceed())
            case Heard():
                self._heard(state, event, actions)
            case Placed(place):
                self._placed(state, place, actions)
            case Leaving():
                self._include(state)
                self._push(state, actions)
                self._bequeath(state, actions)
            case Draining() if not state.draining:
                self._include(state)
                self._push(state, actions)
                state.draining = True
                self._end(state, actions)
            case Ended() | Draining():
                pass
        if state.draining and state.ending.complete and not state.finished:
            self._take_finals(state)
            actions.append(Finished())
        return actions

    def figures(self, state: Serving) -> dict[str, float]:
        served = [shard.staleness for shard in state.shards.values()]
        return {
            "pushes": float(state.pushes),
            "pulls": float(state.pulls),
            "elections": float(state.elections),
            "staleness": float(np.mean(served)) if served else 0.0,
        }

    # ------------------------------------------------------------------------------------------- the worker

    def _range(self, state: Serving, shard: int) -> slice:
        return bounds(shard, self.shards, len(state.local.x))

    def _nbytes(self, state: Serving, shard: int) -> int:
        return int(state.base[self._range(state, shard)].nbytes)

    def _stepped(self, state: Serving, samples: int, rate: float, actions: list[MethodAction]) -> None:
        if samples:
            state.steps += 1
            state.unpushed += 1
            state.rate = rate
        self._include(state)
        if samples and state.steps % self.push == 0:
            self._push(state, actions)
        if samples and state.steps % self.pull == 0:
            self._ask(state, actions)

    def _push(self, state: Serving, actions: list[MethodAction]) -> None:
        if not state.unpushed:
            return
        change = state.local.x - state.base
        state.base[:] = state.local.x
        note = Note("push", state.unpushed, 0, [state.rate])
        state.unpushed = 0
        state.pushes += 1
        for shard, rank in enumerate(state.holders):
            part = change[self._range(state, shard)]
            if rank == state.place.rank:
                self._serve(state, shard, rank, note, part)
            else:
                actions.append(Tell(rank, Note("push", note.round, shard, note.numbers), part.tobytes()))

    def _ask(self, state: Serving, actions: list[MethodAction]) -> None:
        for shard, rank in enumerate(state.holders):
            if shard in state.pulling:
                continue  # still under way: asking again would not make it faster
            part = self._range(state, shard)
            pulling = state.pulling[shard] = Pulling(rank, state.base[part].copy())
            if rank == state.place.rank:
                pulling.answer = np.frombuffer(state.shards[shard].pull(rank), np.float32)
            else:
                actions.append(Tell(rank, Note("pull", 0, shard)))

    def _include(self, state: Serving) -> None:
        """x <- the answer + what the answer does not contain; what was not pushed yet stays so."""
        for shard in [shard for shard, pulling in state.pulling.items() if pulling.answer is not None]:
            pulling = state.pulling.pop(shard)
            assert pulling.answer is not None
            part = self._range(state, shard)
            move = pulling.answer - pulling.mark
            state.local.x[part] += move
            state.base[part] += move
            state.pulls += 1

    # ------------------------------------------------------------------------------------------- the server

    def _open(self, state: Serving, shard: int) -> None:
        """Hold a shard from now on, beginning with what this worker knows of it."""
        known = state.base[self._range(state, shard)].copy()
        state.shards[shard] = Shard(known, Remedy(self.staleness, self.lambda0))

    def _bequeath(self, state: Serving, actions: list[MethodAction]) -> None:
        """This worker goes: who will hold its shards gets them now, and what is pushed here until they all know."""
        for shard, held in state.shards.items() if state.place.others else ():
            heir = state.heirs[shard] = holder(shard, self.shards, state.place.others)
            actions.append(Tell(heir, Note("will", 0, shard), held.w.tobytes()))

    def _serve(self, state: Serving, shard: int, sender: int, note: Note, change: Vector) -> None:
        if state.ending.closed(shard):
            return  # all had ended, and have these weights
        rate, workers = note.numbers[0] if note.numbers else 0.0, len(state.place.members)
        scale = self.scale or 1.0 / math.sqrt(workers)
        state.shards[shard].push(sender, change, workers, max(1, note.round), rate, scale)

    def _heard(self, state: Serving, event: Heard, actions: list[MethodAction]) -> None:
        note, sender, shard = event.note, event.sender, event.note.part
        if shard >= self.shards or len(event.payload) % 4:
            raise MalformedMessage(f"{note.kind!r} for shard {shard} of {self.shards}, {len(event.payload)} bytes")
        if note.kind in ("weights", "final", "hand", "will", "push") and len(event.payload) != self._nbytes(state, shard):
            raise MalformedMessage(f"{len(event.payload)} bytes for shard {shard} of {self._nbytes(state, shard)}")
        if note.kind == "weights":
            pulling = state.pulling.get(shard)
            if pulling is not None and pulling.asked == sender:
                pulling.answer = np.frombuffer(event.payload, np.float32)
        elif note.kind == "final":
            state.ending.final(shard, sender, event.payload)
        elif note.kind == "will":
            self._open(state, shard)
            state.shards[shard].w[:] = np.frombuffer(event.payload, np.float32)
        elif shard not in state.shards:
            # Its sender knows of a death that this worker has not been told of yet.
            state.early = [*state.early[-EARLY:], event]
        elif note.kind == "hand":
            if not state.ending.closed(shard):
                state.shards[shard].w[:] = np.frombuffer(event.payload, np.float32)
        elif note.kind == "push":
            self._serve(state, shard, sender, note, np.frombuffer(event.payload, np.float32))
            actions += [Tell(state.heirs[shard], note, event.payload)] if shard in state.heirs else []
        elif note.kind == "pull":
            actions.append(Tell(sender, Note("weights", 0, shard), state.shards[shard].pull(sender)))
        elif note.kind == "end":
            actions += state.ending.ended(shard, sender, event.payload, state.shards[shard])

    # ------------------------------------------------------------------------------- who comes, goes, and ends

    def _placed(self, state: Serving, place: Place, actions: list[MethodAction]) -> None:
        state.place = place
        for shard, before in enumerate(state.holders):
            if before not in place.members and self.on_death == "stop":
                raise PeerLost(f"worker {before}, which held the weights' shard {shard}, is gone (on_death=stop)")
            now = holder(shard, self.shards, place.members)
            if now == before:
                continue
            state.holders[shard] = now
            state.pulling.pop(shard, None)
            state.elections += 1
            if now == place.rank and shard not in state.shards:  # else it was left to this worker
                self._open(state, shard)
            elif before == place.rank:  # to a newcomer that is entitled to it
                actions.append(Tell(now, Note("hand", 0, shard), state.shards.pop(shard).w.tobytes()))
        for held in state.shards.values():
            held.keep(place.members)
        early, state.early = state.early, []
        for event in early:
            if event.sender in place.members:
                self._heard(state, event, actions)
        actions += state.ending.placed(place, state.shards)
        if state.draining:
            self._end(state, actions)

    def _end(self, state: Serving, actions: list[MethodAction]) -> None:
        actions += state.ending.tell(state.holders, state.shards)

    def _take_finals(self, state: Serving) -> None:
        state.finished = True
        for shard, payload in state.ending.finals.items():
            state.local.x[self._range(state, shard)] = np.frombuffer(payload, np.float32)
