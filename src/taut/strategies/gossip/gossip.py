"""Gossip: FAST's own neighbour exchange. After each step the codec's update goes one hop, to the neighbours.

    u = the codec's update for the local step;   send u to the neighbours;   they include it, and do not pass it on

No worker waits, and little is kept for a neighbour that does not answer (``flow_control.py``). Communication is
incomplete: an update reaches only the neighbours, so replicas drift apart. Every ``mix`` steps each worker also sends its
weights to the neighbours, which move towards them by their mixing weight: without this (``mix=0``, FAST's own form)
nothing pulls replicas together, and on MNIST with momentum SGD they fell apart within an epoch. Traffic per worker
depends on its number of neighbours, not on the size of the cluster. The codec is told as many workers as receive an
update (the neighbours and the sender). The optimizer's moments are not exchanged.
Paper: FAST ("fast asynchronous training": ring or torus, one hop); no published figures.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np

from taut.errors import MalformedMessage
from taut.specs import check_whole
from taut.strategies import api as m
from taut.strategies.allreduce.robust_mean import check_robust, clip_share
from taut.strategies.delivery.flow_control import FlowControl
from taut.strategies.gossip.neighbour_rounds import finish

STALENESS = 1.0  # an update waits for the end of the receiver's step


@dataclass
class GossipState:
    local: m.CodedLocal
    membership: m.Membership
    flow: FlowControl
    turns: int = 0
    left: set[int] = field(default_factory=set)
    taken_leave: set[int] = field(default_factory=set)
    draining: bool = False
    included: int = 0
    distances: dict[int, float] = field(default_factory=dict)  # to neighbours' weights, when they last came


@dataclass(frozen=True)
class Gossip(m.Method):
    """``--strategy gossip --topology torus --codec tether``. ``mix``: weights are mixed every so many steps; 0: never.
    ``robust=clip``: no neighbour's weights pull further than the median of their distances (robust_mean.py).
    """

    name = "gossip"
    info = m.StrategyInfo(
        m.Completeness.NEIGHBOURS,
        (m.Variant(codecs=(m.ADVISED,)), m.Variant(topologies=(m.ADVISED,), codecs=("", "dense"))),
        floods=True,
    )
    paper = "FAST"
    returns = "mix"
    codecs = ("tether", m.ANY_CODEC)
    streams = True
    lockstep = False
    directed = True

    mix: int = 8
    robust: str = "none"

    def __post_init__(self) -> None:
        check_robust(self, ("none", "clip"))
        check_whole(self, "mix", 0, "0 is FAST's own form, without mixing")

    def start(self, membership: m.Membership, local: m.Local) -> GossipState:
        coded = cast(m.CodedLocal, local)
        state = GossipState(coded, membership, FlowControl(coded.merge, coded.x.nbytes))
        _retune(state)
        return state

    def on(self, state: GossipState, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        actions: list[m.MethodAction] = []
        match event:
            case m.Stepped():
                self._tell_neighbours(state, state.local.emit(), actions)
                state.turns += 1
                if self.mix and state.turns % self.mix == 0:
                    weights = state.local.shared.tobytes()
                    actions += [tell for other in _hearers(state) for tell in state.flow.weights(other, weights)]
                actions.append(m.Proceed())
            case m.Heard():
                self._hear(state, event, actions)
            case m.MembersChanged(membership):
                state.membership = membership
                state.flow.keep(membership.members)
                _retune(state)
            case m.Leaving() | m.Draining():
                for rest in state.local.flush():
                    self._tell_neighbours(state, rest, actions)
                actions += state.flow.flush()
                state.draining = isinstance(event, m.Draining)
            case m.Ended():
                pass  # others' updates still come
        if state.draining:
            finish(state, actions)  # after all updates: who has all good-byes has included all that was sent to it
        return actions

    def _hear(self, state: GossipState, heard: m.Heard, actions: list[m.MethodAction]) -> None:
        kind, sender = heard.note.kind, heard.sender
        if kind == "bye":
            state.left.add(sender)
        elif kind == "seen":
            actions += [] if state.draining else state.flow.seen(sender, heard.note.round)
        else:
            actions += state.flow.came(sender)
            try:
                if kind == "weights":
                    _mix(state, sender, heard.payload, clipped=self.robust == "clip")
                else:
                    state.local.absorb(heard.payload)
                    state.included += 1
            except MalformedMessage as error:
                actions.append(m.Refuse(sender, str(error)))  # it still counts as seen

    def _tell_neighbours(self, state: GossipState, payload: bytes | None, actions: list[m.MethodAction]) -> None:
        if payload is not None and not state.draining:
            actions += [tell for other in _hearers(state) for tell in state.flow.update(other, payload)]

    def figures(self, state: GossipState) -> dict[str, float]:
        return {"included": state.included, "merged": state.flow.merged}


def _hearers(state: GossipState) -> list[int]:
    return state.membership.graph(state.turns).outward(state.membership.rank)


def _retune(state: GossipState) -> None:
    hearers = len(_hearers(state)) or min(1, len(state.membership.others))
    state.local.retune(1 + hearers, STALENESS)


def _mix(state: GossipState, sender: int, payload: bytes, clipped: bool) -> None:
    """Set x <- x + W_ij (x_j - x), W the Metropolis-Hastings weights; even ones for a directed graph."""
    own = state.local.shared
    if len(payload) != own.nbytes:
        raise MalformedMessage(f"weights of {len(payload)} bytes; this model has {own.nbytes}")
    graph, rank = state.membership.graph(state.turns), state.membership.rank
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


def _clip(state: GossipState, sender: int, distance: float) -> float:
    """Return what shortens a move to the median of the neighbours' last ones; 0 while fewer than half are known."""
    neighbours = state.membership.neighbours(state.turns)
    state.distances[sender] = distance
    known = sorted(state.distances[other] for other in neighbours if other in state.distances)
    if 2 * len(known) <= len(neighbours) or not known:
        return 0.0
    return clip_share(distance, known[(len(known) - 1) // 2])
