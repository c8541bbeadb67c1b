"""Consensus ADMM: each worker minimizes its own loss plus a penalty on the distance to a common z.

    x_i  ~  argmin f_i(x) + rho/2 |x - z + u_i|^2       by H steps of the user's optimizer
    z    <-  mean_i (x_i + u_i)                         by an all-reduce
    u_i  <-  u_i + x_i - z                              the scaled dual: the accumulated disagreement of i

The second term reaches the optimizer as a gradient, rho (x - z + u), added to the loss's before its step. Exchanged:
x + u. The x of the workers differ until the end, when all take z. The optimizer's moments are not exchanged; with
momentum or Adam they contain the penalty too. A worker that made no step since the last round abstains: its x was not
minimized, so its dual must not grow. While a round is held up, the steps go on towards the last z; the dual grows by the
x that was contributed. Two more vectors per worker (z and u).
Paper: Boyd et al. 2011, "Distributed Optimization and Statistical Learning via the Alternating Direction Method of
Multipliers", section 7.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from taut.collectives import named
from taut.errors import Misuse
from taut.specs import check_whole
from taut.strategies.allreduce.difference_group import group_of
from taut.strategies.api import ANY_COMPRESSOR, Completeness, Local, Membership, StrategyInfo, Tell, Vector
from taut.strategies.periodic.periodic import Periodic, PeriodicState


@dataclass
class ADMMState(PeriodicState):
    """A worker's state: ``z`` is common, ``u`` its own. ``stepped``: it trained before it joined this round."""

    z: Vector = None  # type: ignore[assignment]  # set by start, as all vectors here
    u: Vector = None  # type: ignore[assignment]
    stepped: bool = False


@dataclass(frozen=True)
class ADMM(Periodic):
    """``--strategy admm:rho=0.1,every=10``.

    ``rho``: the weight of the penalty, in units of the loss's curvature; ``every``: steps of one minimization;
    ``schedule``: of the all-reduce.

    >>> import numpy as np
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(ADMM(every=1), [np.full(1, float(rank), np.float32) for rank in range(3)])
    >>> world.run(1); world.finish()
    >>> [x.tolist() for x in world.vectors()]
    [[1.0], [1.0], [1.0]]
    """

    name = "admm"
    info = StrategyInfo(Completeness.SELDOM, (), coded_kinds=("share",))  # it is meant for data that differs
    paper = "Boyd et al. 2011"
    codecs = ("dense", ANY_COMPRESSOR)
    shapes_gradient = True
    keeps_common = ("z",)
    keeps_own = ("u",)

    rho: float = 0.1
    every: int = 10
    schedule: str = "ring"

    def __post_init__(self) -> None:
        if not isinstance(self.rho, int | float) or not 0.0 < self.rho < math.inf:
            raise Misuse(f"admm: rho={self.rho}", "a number above 0", "0.01 to 1 suits most losses; 0 is 'independent'")
        check_whole(self, "every", 1, "so many steps approximate one minimization")
        named(self.schedule)

    @property
    def shares_speeds(self) -> bool:
        return False  # the losses of all workers count alike

    def start(self, membership: Membership, local: Local) -> ADMMState:
        group = group_of(membership, local, self.schedule, own=True)
        return ADMMState(local, membership, group, z=local.x.copy(), u=np.zeros_like(local.x))

    def shape_gradient(self, state: ADMMState, gradient: Vector, rate: float) -> None:
        """Add rho (x - z + u) to the gradient."""
        pull = state.local.x - state.z
        pull += state.u
        pull *= np.float32(self.rho)
        gradient += pull

    def hold(self, state: ADMMState) -> Vector:
        return state.local.x.copy()

    def join(self, state: ADMMState) -> list[Tell]:
        state.stepped = state.steps > 0
        return self.begin(state, state.local.x + state.u, float(state.stepped), keeps=True)

    def conclude(self, state: ADMMState) -> None:
        if state.trained or state.newcomers:  # else z has not changed
            state.group.mean(state.z)
        if state.stepped:
            state.u += state.local.x
            state.u -= state.z
        if state.draining and self.agreed(state):
            state.local.x[:] = state.z
