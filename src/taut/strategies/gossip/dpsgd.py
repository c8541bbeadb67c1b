"""D-PSGD: after each local step, every worker averages its weights with its neighbours'.

    x_i  <-  sum_j W_ij x_j        W doubly stochastic, so the mean is conserved

Synchronous between neighbours only: a worker waits for its neighbours. Weights are exchanged, the optimizer's moments are
not. The step comes before the mixing, as in later papers; Lian et al. mix while the gradient of the unmixed weights is
being computed, which converges at the same rate.

**With a compressor** neighbours keep copies h of each other's x, and only what changes of them is sent, as in ``choco``:
x_i <- x_i + gamma sum_j W_ij (h_j - h_i) (``neighbour_copies.py``). The mean is conserved. Tracked gradients are mixed
alike (BEER).
Papers: Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.errors import Misuse
from taut.specs import check_choice, check_share, check_whole
from taut.strategies import api as m
from taut.strategies.allreduce.robust_mean import check_robust, clip, merge
from taut.strategies.gossip.momentum import GradientTracking, QuasiGlobalMomentum, check_optimizer
from taut.strategies.gossip.neighbour_copies import NeighbourCopies, copies_for
from taut.strategies.gossip.neighbour_rounds import NeighbourRounds, NeighbourState, check_length, tell_all
from taut.topologies.mixing import KINDS, degrees_of, row_of

if TYPE_CHECKING:
    from taut.topologies.shape import Shape


@dataclass
class DPSGDState(NeighbourState):
    momentum: QuasiGlobalMomentum | None = None
    tracking: GradientTracking | None = None
    copies: NeighbourCopies | None = None


@dataclass(frozen=True)
class DPSGD(NeighbourRounds[DPSGDState]):
    """``--strategy dpsgd``, ``dpsgd:mixing=uniform``, ``dpsgd:momentum=quasi-global``, ``dpsgd:tracking=true``,
    ``dpsgd:robust=median``, ``dpsgd:every=8,robust=trimmed`` (with ``--topology complete``: a robust average of all).

    Arguments:
        mixing: ``metropolis`` weights, for any undirected graph; ``uniform`` ones where all have equally many
            neighbours, also along directed edges (exponential, one-peer).
        momentum: ``quasi-global``, for data that differs between workers; the optimizer then has none (momentum.py).
        mu: of that momentum.
        tracking: step along the tracked mean of all gradients (momentum.py). Doubles the traffic.
        robust: ``median``, ``trimmed`` or ``clip``, against neighbours whose weights are wrong (robust_mean.py).
        every: local steps between two rounds.

    >>> DPSGD(momentum="quasi-global").shapes_gradient, DPSGD().shapes_gradient
    (True, False)
    """

    name = "dpsgd"
    info = m.StrategyInfo(m.Completeness.NEIGHBOURS, (m.Variant(topologies=(m.ADVISED,)),), coded_kinds=("x",))
    codecs = ("dense", m.ANY_COMPRESSOR)
    paper = "Lian et al. 2017"
    keeps_own = ("momentum.m",)
    mixing: str = "metropolis"
    momentum: str = "none"
    mu: float = 0.9
    tracking: bool = False
    robust: str = "none"
    every: int = 1

    def __post_init__(self) -> None:
        check_choice(self, "mixing", KINDS)
        check_choice(self, "momentum", ("none", "quasi-global"))
        check_share(self, "mu", high=0.9999)
        check_robust(self)
        check_whole(self, "every", 1)
        if self.tracking and (self.robust != "none" or self.every > 1):
            given = f"robust={self.robust}" if self.robust != "none" else f"every={self.every}"
            raise Misuse(f"dpsgd: tracking with {given}", "one of them", "tracking needs plain mixing at each step")
        if self.momentum != "none" and self.every > 1:
            raise Misuse(f"dpsgd: momentum={self.momentum} with every={self.every}", "one of them", "drop every")
        # Class attributes elsewhere; here they follow from the parameters.
        object.__setattr__(self, "shapes_gradient", self.tracking or self.momentum != "none")
        object.__setattr__(self, "directed", self.mixing == "uniform")

    def check_codec(self, codec: str) -> None:
        if codec != "dense" and self.robust != "none":
            remedy = "it compares whole vectors. Leave the codec out"
            raise Misuse(f"codec {codec!r} with dpsgd:robust={self.robust}", "dense", remedy)

    def start(self, membership: m.Membership, local: m.Local) -> DPSGDState:
        state = DPSGDState(local, membership, copies=copies_for(membership, local, 2 if self.tracking else 1))
        if self.momentum != "none":
            state.momentum = QuasiGlobalMomentum(local.x, self.mu)
        if self.tracking:
            state.tracking = GradientTracking(len(local.x))
        return state

    def send(self, state: DPSGDState) -> list[m.MethodAction]:
        receivers = self.receivers(state)
        if state.copies is not None:
            return state.copies.tell(state, receivers, self.mixed(state))
        if not receivers:
            return []
        payload = state.local.x.tobytes() + (state.tracking.y.tobytes() if state.tracking else b"")
        return tell_all(state, receivers, payload)

    def check(self, state: DPSGDState, heard: m.Heard) -> None:
        if state.copies is not None:
            state.copies.check(heard, state.local)
        else:
            check_length(heard, state.local, vectors=2 if state.tracking else 1)

    def mixed(self, state: DPSGDState) -> Sequence[m.Vector]:
        return (state.local.x, state.tracking.y) if state.tracking else (state.local.x,)

    def merge(self, state: DPSGDState, given: m.Stepped, heard: Sequence[m.Heard]) -> None:
        row = row_of(state.membership.graph(state.round), state.membership.rank, self.mixing)
        x, copies = state.local.x, state.copies
        if copies is not None:
            copies.mix(self.mixed(state), row, heard, copies.gamma)
        else:
            self._mix(x, row, {one.sender: np.frombuffer(one.payload, np.float32, x.size) for one in heard})
        if state.tracking is not None and copies is None:
            theirs = {one.sender: np.frombuffer(one.payload, np.float32, x.size, x.nbytes) for one in heard}
            average(state.tracking.y, row, theirs)
        if state.momentum is not None:
            state.momentum.mixed(x, given.rate)

    def _mix(self, x: m.Vector, row: Mapping[int, float], theirs: Mapping[int, m.Vector]) -> None:
        if self.robust == "none":
            average(x, row, theirs)
        elif self.robust == "clip":
            clip(x, theirs, row)
        else:
            merge(self.robust, [x, *theirs.values()], x)

    def restart(self, state: DPSGDState) -> None:
        if state.copies is not None:
            state.copies.restart()
        if state.tracking is not None:
            state.tracking.restart()
        if state.momentum is not None:
            state.momentum.mixed(state.local.x, 0.0)

    def shape_gradient(self, state: DPSGDState, gradient: m.Vector, rate: float) -> None:
        if state.tracking is not None:
            state.tracking.shape(gradient)
        if state.momentum is not None:
            state.momentum.shape(gradient)

    def check_shape(self, shape: Shape, workers: int) -> None:
        graph = shape.union(range(workers))
        if graph.directed and self.mixing == "metropolis":
            given = f"dpsgd: mixing=metropolis on {shape.name}, whose edges have directions"
            raise Misuse(given, "an undirected topology", "try dpsgd:mixing=uniform, or --strategy sgp")
        if self.mixing == "uniform" and len(degrees_of(graph)) > 1:
            expected = "equally many neighbours for all workers"
            remedy = "try --strategy sgp" if graph.directed else "try dpsgd:mixing=metropolis"
            raise Misuse(f"dpsgd: mixing=uniform on {shape.name} of {workers} workers", expected, remedy)

    def check_optimizer(self, optimizer: str, settings: Mapping[str, Any]) -> None:
        if self.momentum != "none":
            check_optimizer(f"dpsgd:momentum={self.momentum}", optimizer, settings)


def average(x: m.Vector, row: Mapping[int, float], theirs: Mapping[int, m.Vector]) -> None:
    """Set x <- sum_j W_ij x_j, in place; the share of a neighbour without a message stays with x."""
    x *= np.float32(1.0 - sum([row[other] for other in theirs]))
    for other, vector in sorted(theirs.items()):
        x += np.float32(row[other]) * vector
