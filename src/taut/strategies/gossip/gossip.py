"""Gossip: FAST's own neighbour exchange. After each step the codec's update goes one hop, to the neighbours.

    u = what the codec says of the local step;   send u to the neighbours;   they include it, and do not pass it on

Nobody waits, and little is kept for who cannot be heard (``flow_control.py``). Communication is incomplete: an update
reaches those one hop away only, so replicas drift apart. Every ``mix`` steps each also sends its weights to the
neighbours, who move towards them by their mixing weight: without that (``mix=0``, FAST's own form) nothing pulls
replicas together, and on MNIST with momentum SGD they fell apart within an epoch. Traffic per worker depends on its
number of neighbours, not on the size of the cluster. The codec is told that many workers (the neighbours and oneself):
so many hear an update. Moments stay at home.
Paper: FAST ("fast asynchronous training": ring or torus, one hop); no published figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, cast

import numpy as np

from taut.core.events import Ended
from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.allreduce.robust_mean import check_robust, clip_share
from taut.strategies.api import (
    Draining,
    Finished,
    Heard,
    Leaving,
    Local,
    MemberPlace,
    Method,
    MethodAction,
    MethodEvent,
    Placed,
    Proceed,
    Refuse,
    Stepped,
    Tell,
    check_whole,
)
from taut.strategies.delivery.flow_control import FlowControl
from taut.strategies.info import ADVISED, ANY_CODEC, Completeness, StrategyInfo, Variant

if TYPE_CHECKING:
    from taut.strategies.api import Vector

STALENESS = 1.0  # an update waits for the end of the receiver's step


class Coded(Local, Protocol):
    """What gossip sees of its worker: its codec."""

    def flush(self) -> list[bytes]:
        """The run is over: what is still worth sending."""

    def merge(self, payloads: Sequence[bytes]) -> bytes:
        """One payload that says what these do together."""

    def retune(self, workers: int, staleness: float) -> None:
        """How many hear an update, the sender among them, and how late, in steps."""

    @property
    def shared(self) -> Vector:
        """The weights without what the codec has not told yet."""

    def shift(self, change: Vector) -> None:
        """Move by ``change``, of which the codec says nothing."""


@dataclass
class Exchange:
    """A worker's state."""

    local: Coded
    place: MemberPlace
    windows: FlowControl
    turns: int = 0
    left: set[int] = field(default_factory=set)
    taken_leave: set[int] = field(default_factory=set)
    draining: bool = False
    included: int = 0
    distances: dict[int, float] = field(default_factory=dict)  # of neighbours' weights, when they last came


@dataclass(frozen=True)
class Gossip(Method):
    """``--strategy gossip --topology torus --codec tether``. ``mix``: weights are mixed every so many steps; 0: never.
    ``robust=clip``: no neighbour's weights draw further than the median of their distances (robust_mean.py). What the
    codec says of a step is included as it comes, all the same.

    >>> Gossip().codecs[:3]
    ('tether', 'threshold', 'dense')
    """

    name: ClassVar[str] = "gossip"
    info: ClassVar[StrategyInfo] = StrategyInfo(
        Completeness.NEIGHBOURS, (Variant(codecs=(ADVISED,)), Variant(topologies=(ADVISED,), codecs=("", "dense")))
    )
    paper: ClassVar[str] = "FAST"
    returns: ClassVar[Literal["sum", "mix", "take"]] = "mix"
    codecs: ClassVar[tuple[str, ...]] = ("tether", ANY_CODEC)
    streams: ClassVar[bool] = True
    lockstep: ClassVar[bool] = False
    directed: ClassVar[bool] = True

    mix: int = 8
    robust: str = "none"

    def __post_init__(self) -> None:
        check_robust(self.name, self.robust, ("none", "clip"))
        check_whole(self, "mix", 0, "0 is FAST's own form, without mixing")

    def start(self, place: MemberPlace, local: Local) -> Exchange:
        coded = cast(Coded, local)
        state = Exchange(coded, place, FlowControl(coded.merge, coded.x.nbytes))
        _retune(state)
        return state

    def on(self, state: Exchange, event: MethodEvent, now: float) -> list[MethodAction]:
        actions: list[MethodAction] = []
        match event:
            case Stepped():
                self._tell_neighbours(state, state.local.emit(), actions)
                state.turns += 1
                if self.mix and state.turns % self.mix == 0:
                    weights = state.local.shared.tobytes()
                    actions += [tell for other in _hearers(state) for tell in state.windows.weights(other, weights)]
                actions.append(Proceed())
            case Heard(sender, Note(kind="bye"), _):
                state.left.add(sender)
            case Heard(sender, Note(kind="seen", round=count), _):
                actions += [] if state.draining else state.windows.seen(sender, count)
            case Heard(sender):
                actions += state.windows.came(sender)
                actions += self._include(state, event)
            case Placed(place):
                state.place = place
                state.windows.keep(place.members)
                _retune(state)
            case Leaving() | Draining():
                for rest in state.local.flush():
                    self._tell_neighbours(state, rest, actions)
                actions += state.windows.flush()
                state.draining = isinstance(event, Draining)
            case Ended():
                pass  # updates of others still come
        if state.draining:
            self._drain(state, actions)
        return actions

    def _include(self, state: Exchange, heard: Heard) -> list[MethodAction]:
        try:
            if heard.note.kind == "weights":
                _mix(state, heard.sender, heard.payload, clipped=self.robust == "clip")
            else:
                state.local.absorb(heard.payload)
                state.included += 1
        except MalformedMessage as error:
            return [Refuse(heard.sender, str(error))]  # it was seen all the same
        return []

    def _tell_neighbours(self, state: Exchange, payload: bytes | None, actions: list[MethodAction]) -> None:
        if payload is not None and not state.draining:
            actions += [tell for other in _hearers(state) for tell in state.windows.update(other, payload)]

    def _drain(self, state: Exchange, actions: list[MethodAction]) -> None:
        """A good-bye comes after all updates: whoever has everybody's has included everything that was sent to it."""
        fresh = [other for other in state.place.others if other not in state.taken_leave]
        actions += [Tell(other, Note("bye")) for other in fresh]
        state.taken_leave.update(fresh)
        if state.left >= set(state.place.others):
            actions.append(Finished())

    def figures(self, state: Exchange) -> dict[str, float]:
        return {"included": float(state.included), "merged": float(state.windows.merged)}


def _hearers(state: Exchange) -> list[int]:
    return state.place.graph(state.turns).outward(state.place.rank)


def _retune(state: Exchange) -> None:
    hearers = len(_hearers(state)) or min(1, len(state.place.others))
    state.local.retune(1 + hearers, STALENESS)


def _mix(state: Exchange, sender: int, payload: bytes, clipped: bool) -> None:
    """x <- x + W_ij (x_j - x), W the Metropolis-Hastings weights; of a directed graph, even ones."""
    own = state.local.shared
    if len(payload) != own.nbytes:
        raise MalformedMessage(f"weights of {len(payload)} bytes; this model has {own.nbytes}")
    graph, rank = state.place.graph(state.turns), state.place.rank
    if sender not in graph.members:
        return
    if graph.directed:
        share = 1.0 / (1 + len(graph.inward(rank)))
    else:
        share = 1.0 / (1 + max(graph.degree(rank), graph.degree(sender)))
    theirs = np.frombuffer(payload, np.float32)
    if not np.isfinite(theirs).all():
        raise MalformedMessage(f"weights of worker {sender} that are not finite")
    if clipped:
        share *= _clip(state, sender, float(np.linalg.norm(theirs.astype(np.float64) - own)))
    state.local.shift(np.float32(share) * (theirs - own))


def _clip(state: Exchange, sender: int, distance: float) -> float:
    """By how much to shorten a move of this length: to the median of the neighbours' last ones. While fewer than half of
    them are known, it cannot be told what is usual, and nobody moves."""
    neighbours = state.place.neighbours(state.turns)
    state.distances[sender] = distance
    known = sorted(state.distances[other] for other in neighbours if other in state.distances)
    if 2 * len(known) <= len(neighbours) or not known:
        return 0.0
    return clip_share(distance, known[(len(known) - 1) // 2])
