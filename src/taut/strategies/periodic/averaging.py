"""Local SGD: each worker trains alone for H steps, then all weights are averaged.

    x_i  <-  sum_j n_j x_j / sum_j n_j        every H steps; n_j: the samples that j trained on since the last time

With H = 1 and plain SGD this is synchronous training. Exchanged: the weights, by an all-reduce. The optimizer's moments
(momentum, Adam's m and v) are not exchanged, and go on from the mean.
Papers: McDonald et al. 2010, "Distributed Training Strategies for the Structured Perceptron"; Stich 2018, "Local SGD
Converges Fast and Communicates Little".
"""

from __future__ import annotations

from dataclasses import dataclass

from taut.collectives import named
from taut.specs import check_choice, check_whole
from taut.strategies.allreduce.difference_group import group_of
from taut.strategies.allreduce.robust_mean import check_robust
from taut.strategies.api import Completeness, Local, Membership, StrategyInfo, Tell, Variant
from taut.strategies.periodic.periodic import Periodic, PeriodicState

WEIGHTS = ("samples", "equal")


@dataclass(frozen=True)
class Averaging(Periodic):
    """``--strategy averaging:every=8``.

    ``every``: local steps between two averages. ``weights``: ``samples`` weighs a worker by what it trained on since the
    last average; ``equal`` weighs all alike that trained at all. ``schedule``: of the all-reduce. ``robust``: ``median``,
    ``trimmed`` or ``clip``, against workers whose weights are wrong: every worker then sends its weights to all, and all
    count alike, whether they trained or not (robust_group.py).

    A round that is held up (a worker has died, and this is not known yet) does not stop training: x <- mean + d when the
    round is over, with d the worker's change since it contributed.

    A worker that is out of data still joins rounds, but counts for nothing until it trains again. When no worker has
    trained, all x are equal already and stay.

    >>> import numpy as np
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(Averaging(every=2), [np.full(1, float(rank), np.float32) for rank in range(3)])
    >>> world.run(2)
    >>> [x.tolist() for x in world.vectors()]
    [[1.0], [1.0], [1.0]]
    """

    name = "averaging"
    info = StrategyInfo(Completeness.SELDOM, (Variant("every=8"),), coded_kinds=("share",))
    paper = "Stich 2018"
    returns = "mix"

    every: int = 8
    weights: str = "samples"
    schedule: str = "ring"
    robust: str = "none"

    def __post_init__(self) -> None:
        check_whole(self, "every", 1, "1 averages after every step, 'independent' never does")
        check_choice(self, "weights", WEIGHTS)
        named(self.schedule)
        check_robust(self, schedule=self.schedule)

    @property
    def shares_speeds(self) -> bool:
        return self.robust == "none" and self.weights == "samples"

    def start(self, membership: Membership, local: Local) -> PeriodicState:
        return PeriodicState(local, membership, group_of(membership, local, self.schedule, self.robust))

    def join(self, state: PeriodicState) -> list[Tell]:
        weight = float(state.samples) if self.weights == "samples" else float(state.steps > 0)
        return self.begin(state, state.local.x, weight, keeps=True)

    def conclude(self, state: PeriodicState) -> None:
        """Take the mean, unless it is not finite: all see the same bits, and go on without it."""
        if not (state.trained or state.newcomers):
            return
        if state.group.finite:
            state.group.mean(state.local.x)
        else:
            state.spoilt += 1

    def figures(self, state: PeriodicState) -> dict[str, float]:
        return super().figures(state) | ({"spoilt": state.spoilt} if state.spoilt else {})
