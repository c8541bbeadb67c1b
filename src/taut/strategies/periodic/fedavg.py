"""Federated averaging: in each round, a few chosen workers train, and all workers take their mean.

    S_r: max(1, C p) workers drawn at random        x  <-  sum_{i in S_r} n_i x_i / sum_{i in S_r} n_i

n_i: the samples that i trained on in this round. A worker that is not chosen waits for the mean, and keeps its leases
until it is chosen. (The very first step of a run is made before any worker is chosen, and counts with its samples.) When
none of the chosen had data, as towards the end of a run, all workers with data are chosen for the next round. While a
round is held up all workers train, and contribute this to the next round. Exchanged: the weights. The optimizer's moments
are not exchanged and go on from the mean; a client of the paper starts with fresh ones, the same for its plain SGD.

``robust``: the median, say, of the chosen workers' weights, instead of their mean (``robust_group.py``). All workers draw
the chosen ones; none can claim to be chosen. So training by a worker that was not chosen (a round was held up) is not in
the mean yet: the worker adds it to the mean until it is chosen.
Paper: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data".
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taut.collectives import named
from taut.errors import Misuse
from taut.specs import check_share, check_whole
from taut.strategies.allreduce.group import OWN_NUMBERS
from taut.strategies.allreduce.robust_group import RobustGroup, group_of
from taut.strategies.allreduce.robust_mean import check_robust
from taut.strategies.api import Completeness, Local, Membership, StrategyInfo, Tell, Vector
from taut.strategies.periodic.periodic import Periodic, PeriodicState

if TYPE_CHECKING:
    from taut.topologies.shape import Shape

FEWEST = 3  # so many that a median can outvote one


@dataclass
class FedAvgState(PeriodicState):
    """A worker's state. ``chosen``: how many rounds it was chosen for; ``idle_round``: no worker trained in the last
    round. If robust: ``common``, the last round's mean; ``gave``: steps and samples of the round under way."""

    chosen: int = 0
    idle_round: bool = False
    common: Vector | None = None
    gave: tuple[int, int] | None = None


@dataclass(frozen=True)
class FedAvg(Periodic):
    """``--strategy fedavg:fraction=0.5,steps=20``.

    ``fraction``: of the workers that train in a round (C). ``steps``: local steps in a round. ``samples``: local samples
    in a round, instead of ``steps``; E local epochs over n samples and p workers are ``samples = E n / p``. ``seed``: all
    workers draw alike from it, the round's number and the members. ``robust``: ``median``, ``trimmed`` or ``clip`` of the
    chosen, at least three: all of them count alike then, and every worker sends to every other.

    >>> import numpy as np
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(FedAvg(fraction=0.5, steps=4), [np.zeros(1, np.float32) for _ in range(4)])
    >>> world.run(8, ends=True); world.finish()
    >>> world.spread()
    0.0
    """

    name = "fedavg"
    info = StrategyInfo(Completeness.SELDOM, ())  # it is meant for data that stays where it is
    paper = "McMahan et al. 2017"

    fraction: float = 0.5
    steps: int = 20
    samples: int = 0
    seed: int = 0
    schedule: str = "ring"
    robust: str = "none"

    def __post_init__(self) -> None:
        check_share(self, "fraction")
        check_whole(self, "steps", 1, "so many local steps make a round")
        check_whole(self, "samples", 0, "0 counts steps instead")
        check_whole(self, "seed", 0)
        named(self.schedule)
        check_robust(self, schedule=self.schedule)

    def check_shape(self, shape: Shape, workers: int) -> None:
        count = self._chosen(workers)
        if self.robust != "none" and count < FEWEST:
            share = f"fraction={self.fraction:g} of {workers} workers: {count} in a round"
            expected = f"at least {FEWEST}, so that one can be outvoted"
            raise Misuse(f"fedavg: robust={self.robust} with {share}", expected, "take a larger fraction")

    @property
    def summed_numbers(self) -> int:
        return super().summed_numbers + (self.robust != "none")

    @property
    def shares_speeds(self) -> bool:
        return self.robust == "none" and not self.samples  # else a round has as many samples of each worker

    def start(self, membership: Membership, local: Local) -> FedAvgState:
        group = group_of(membership, len(local.x), self.schedule, self.robust, self._voters)
        return FedAvgState(local, membership, group, common=None if self.robust == "none" else local.x.copy())

    def _voters(self, members: Collection[int], completed: int, says: Sequence[float]) -> Collection[int]:
        """Return the chosen workers; all, in the last round or if most say that no worker trained in the last round."""
        _, ending, contributors = says[:OWN_NUMBERS]
        idle = says[OWN_NUMBERS + 2]
        all_vote = 2 * idle > contributors or ending == contributors
        return members if all_vote else self.draw(tuple(members), completed)

    def _chosen(self, workers: int) -> int:
        return max(1, int(self.fraction * workers + 0.5))

    def draw(self, members: tuple[int, ...], round: int) -> set[int]:
        """Return the workers that train in this round, the same everywhere.

        >>> sorted(FedAvg(fraction=0.5).draw((0, 1, 2, 3), round=7)) == sorted(FedAvg().draw((0, 1, 2, 3), round=7))
        True
        >>> len(FedAvg(fraction=0.01).draw((0, 1, 2, 3), round=7))
        1
        """
        return set(random.Random(f"{self.seed} {round}").sample(members, self._chosen(len(members))))

    def due(self, state: FedAvgState) -> bool:
        if state.samples >= self.samples if self.samples else state.steps >= self.steps:
            return True
        return not state.idle_round and state.membership.rank not in self.draw(
            state.membership.members, state.group.completed
        )

    def join(self, state: FedAvgState) -> list[Tell]:
        state.chosen += state.steps > 0
        state.gave = (state.steps, state.samples) if state.samples else None
        idle = () if state.common is None else (float(state.idle_round),)
        return self.begin(state, state.local.x, float(state.samples), *idle, keeps=True)

    def conclude(self, state: FedAvgState) -> None:
        state.idle_round = not state.trained
        if isinstance(state.group, RobustGroup) and state.common is not None:
            self._take(state, state.group, state.common)
        elif state.trained or state.newcomers:
            state.group.mean(state.local.x)

    def _take(self, state: FedAvgState, group: RobustGroup, common: Vector) -> None:
        """Set x to the mean, plus this worker's changes if the mean should contain them and does not yet."""
        x, last = state.local.x, group.ending == group.contributors
        if not (state.trained or state.newcomers or last):
            return
        later = x - common if state.gave and state.membership.rank not in group.voted and not last else None
        if group.mean(x):
            common[:] = x
            if later is not None and state.gave is not None:
                x += later
                state.steps += state.gave[0]
                state.samples += state.gave[1]

    def spare(self, state: FedAvgState) -> bool:
        """Return whether this worker was not chosen and waits while the chosen train."""
        return state.begun and state.lent

    def figures(self, state: FedAvgState) -> dict[str, float]:
        return {**super().figures(state), "rounds_trained": state.chosen}
