"""SparseLoCo: local training for H steps, then a sparse mean change; what was not sent fades, in place of momentum.

    D_i    =  x_i - theta                               the change of the worker's H steps
    e_i    <- beta e_i + n_i D_i;   q_i = Q(e_i);   e_i <- e_i - q_i        n_i: samples since the last round
    theta  <- theta + alpha sum_i q_i / sum_i n_i;   x_i <- theta

Q is the run's codec: `chunked`, the largest elements of each chunk as two bits, unless another is chosen. The
accumulator e_i is the codec's residual. It remembers changes for about 1 / (1 - beta) rounds, as the outer momentum of
``diloco`` does, but each worker its own; theta has no momentum. Exchanged: q_i, from everybody to everybody. One vector
more per worker (theta) beside the codec's. With beta = alpha = 1 this is ``averaging`` with a codec. Where no codec
compresses, nothing is left out, and beta says nothing.

Deaths, joins and rounds that are held up are those of ``periodic.py``; theta is common after a worker's first round.
Paper: Sarfi et al. 2025, "Communication efficient LLM pre-training with SparseLoCo".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.specs import check_share, check_whole
from taut.strategies import api as m
from taut.strategies.allreduce.difference_group import DifferenceGroup, group_of
from taut.strategies.periodic.periodic import Periodic, PeriodicState


@dataclass
class SparseLoCoState(PeriodicState):
    """A worker's state. ``common``: all workers have the same theta."""

    theta: m.Vector = None  # type: ignore[assignment]  # set by start
    common: bool = False


@dataclass(frozen=True)
class SparseLoCo(Periodic):
    """``--strategy sparseloco:every=50``, ``--codec chunked:density=0.02``.

    ``every``: H. ``decay``: beta, of what was not sent (1 forgets nothing). ``outer_rate``: alpha.

    >>> import numpy as np
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(SparseLoCo(every=4), [np.zeros(5, np.float32) for _ in range(3)])
    >>> world.run(8); world.finish()
    >>> world.spread()
    0.0
    """

    name = "sparseloco"
    info = m.StrategyInfo(m.Completeness.SELDOM, (m.Variant("every=50"),), short="every=5", coded_kinds=("share",))
    paper = "Sarfi et al. 2025"
    codecs = ("chunked", "dense", m.ANY_FAITHFUL)
    keeps_common = ("theta",)

    every: int = 50
    decay: float = 0.95
    outer_rate: float = 1.0

    def __post_init__(self) -> None:
        check_whole(self, "every", 1, "the paper takes 15 to 250")
        check_share(self, "decay")
        check_share(self, "outer_rate", high=10.0)

    @property
    def summed_numbers(self) -> int:
        return super().summed_numbers + 1

    def start(self, membership: m.Membership, local: m.Local) -> SparseLoCoState:
        return SparseLoCoState(local, membership, group_of(membership, local), theta=local.x.copy())

    def join(self, state: SparseLoCoState) -> list[m.Tell]:
        if state.samples and state.coded_reference is not None and state.local.coder is not None:
            state.local.coder.fade(self.decay)
        return self.begin(state, state.local.x, float(state.samples), float(not state.common), keeps=True)

    def conclude(self, state: SparseLoCoState) -> None:
        """Move theta along the mean change; to the mean itself while some member has another theta."""
        x, theta, joined = state.local.x, state.theta, state.group.extra[2] > 0.0
        if joined or state.trained:
            state.group.mean(x)
            if joined or self.outer_rate == 1.0:
                theta[:] = x
            else:
                theta += np.float32(self.outer_rate) * (x - theta)
        x[:] = theta
        state.common = True
        if isinstance(state.group, DifferenceGroup):
            state.group.rebase(theta)
