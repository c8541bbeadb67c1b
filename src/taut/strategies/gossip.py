"""Gossip: FAST's own neighbour exchange. After each step the codec's update goes one hop, to the neighbours.

    u = what the codec says of the local step;   send u to the neighbours;   they include it, and do not pass it on

Nobody waits. Communication is incomplete: an update reaches those one hop away only, so replicas differ, the further
apart the more. Traffic per worker depends on its number of neighbours, not on the size of the cluster. The codec is told
that many workers (the neighbours and oneself): so many hear an update. Moments stay at home.
Paper: FAST ("fast asynchronous training": ring or torus, one hop); no published figures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol, cast

from taut.core.events import Ended
from taut.core.messages import Note
from taut.strategies.method import (
    Draining,
    Finished,
    Heard,
    Local,
    Method,
    MethodAction,
    MethodEvent,
    Place,
    Placed,
    Proceed,
    Stepped,
    Tell,
)

STALENESS = 1.0  # an update waits for the end of the receiver's step


class Coded(Local, Protocol):
    """What gossip sees of its worker: its codec."""

    def flush(self) -> list[bytes]:
        """The run is over: what is still worth sending."""

    def retune(self, workers: int, staleness: float) -> None:
        """How many hear an update, the sender among them, and how late, in steps."""


@dataclass
class Exchange:
    """A worker's state."""

    local: Coded
    place: Place
    turns: int = 0
    left: set[int] = field(default_factory=set)
    taken_leave: set[int] = field(default_factory=set)
    draining: bool = False
    included: int = 0


@dataclass(frozen=True)
class Gossip(Method):
    """``--strategy gossip --topology torus --codec tether``.

    >>> Gossip().codecs
    ('tether', 'threshold', 'dense')
    """

    name: ClassVar[str] = "gossip"
    paper: ClassVar[str] = "FAST"
    codecs: ClassVar[tuple[str, ...]] = ("tether", "threshold", "dense")
    lockstep: ClassVar[bool] = False
    directed: ClassVar[bool] = True

    def start(self, place: Place, local: Local) -> Exchange:
        state = Exchange(cast(Coded, local), place)
        _retune(state)
        return state

    def on(self, state: Exchange, event: MethodEvent, now: float) -> list[MethodAction]:
        actions: list[MethodAction] = []
        match event:
            case Stepped():
                self._tell_neighbours(state, state.local.emit(), actions)
                state.turns += 1
                actions.append(Proceed())
            case Heard(sender, Note(kind="bye"), _):
                state.left.add(sender)
            case Heard(_, _, payload):
                state.local.absorb(payload)
                state.included += 1
            case Placed(place):
                state.place = place
                _retune(state)
            case Draining():
                for rest in state.local.flush():
                    self._tell_neighbours(state, rest, actions)
                state.draining = True
            case Ended():
                pass  # updates of others still come
        if state.draining:
            self._drain(state, actions)
        return actions

    def _tell_neighbours(self, state: Exchange, payload: bytes | None, actions: list[MethodAction]) -> None:
        if payload is None or state.draining:
            return
        place = state.place
        actions += [Tell(other, Note("update"), payload) for other in place.graph(state.turns).outward(place.rank)]

    def _drain(self, state: Exchange, actions: list[MethodAction]) -> None:
        """A good-bye comes after all updates: whoever has everybody's has included everything that was sent to it."""
        fresh = [other for other in state.place.others if other not in state.taken_leave]
        actions += [Tell(other, Note("bye")) for other in fresh]
        state.taken_leave.update(fresh)
        if state.left >= set(state.place.others):
            actions.append(Finished())

    def figures(self, state: Exchange) -> dict[str, float]:
        return {"included": float(state.included)}


def _retune(state: Exchange) -> None:
    place = state.place
    hearers = len(place.graph(state.turns).outward(place.rank)) or min(1, len(place.others))
    state.local.retune(1 + hearers, STALENESS)
