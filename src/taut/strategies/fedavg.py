"""Federated averaging: in each round, a few chosen workers train; everybody takes over their mean.

    S_r: max(1, C p) workers drawn at random        x  <-  sum_{i in S_r} n_i x_i / sum_{i in S_r} n_i

n_i: the samples that i trained on in this round. Who is not chosen waits for the mean, and its data with it: it neither
trains in vain nor throws a step away. (Its leases are trained on when it is chosen; only the very first step of a run is
made before anybody is chosen, and counts with its samples.) When none of the chosen had data, as towards the end of a
run, everybody who has some is chosen for the next round. While a round is held up everybody trains, and comes to the next
one with that. Exchanged: the weights. The optimizer's moments stay at home
and go on from the mean; a client of the paper starts with fresh ones, which for its plain SGD is the same.
Paper: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data".
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from taut.collectives import named
from taut.strategies.group import Group
from taut.strategies.method import Local, Place, Tell, check_share, check_whole
from taut.strategies.periodic import Period, Periodic


@dataclass
class Client(Period):
    """A worker's state. ``chosen``: how many rounds it was chosen for; ``idle_round``: nobody trained in the last one."""

    chosen: int = 0
    idle_round: bool = False


@dataclass(frozen=True)
class FedAvg(Periodic):
    """``--strategy fedavg:fraction=0.5,steps=20``.

    ``fraction``: of the workers that train in a round (C). ``steps``: that they train for. ``samples``: train until so
    many were seen instead; E local epochs over n samples and p workers are ``samples = E n / p``. ``seed``: of the draw,
    which everybody makes alike from it, the round's number and the members.

    >>> import numpy as np
    >>> from taut.testing.method_world import MethodWorld
    >>> world = MethodWorld(FedAvg(fraction=0.5, steps=4), [np.zeros(1, np.float32) for _ in range(4)])
    >>> world.run(8, ends=True); world.finish()
    >>> world.spread()
    0.0
    """

    name: ClassVar[str] = "fedavg"
    paper: ClassVar[str] = "McMahan et al. 2017"

    fraction: float = 0.5
    steps: int = 20
    samples: int = 0
    seed: int = 0
    schedule: str = "ring"

    def __post_init__(self) -> None:
        check_share(self, "fraction")
        check_whole(self, "steps", 1, "so many local steps make a round")
        check_whole(self, "samples", 0, "0 counts steps instead")
        check_whole(self, "seed", 0)
        named(self.schedule)

    def start(self, place: Place, local: Local) -> Client:
        return Client(local, place, Group(place, len(local.x), self.schedule))

    def draw(self, members: tuple[int, ...], round: int) -> set[int]:
        """Who trains in this round, the same everywhere.

        >>> sorted(FedAvg(fraction=0.5).draw((0, 1, 2, 3), round=7)) == sorted(FedAvg().draw((0, 1, 2, 3), round=7))
        True
        >>> len(FedAvg(fraction=0.01).draw((0, 1, 2, 3), round=7))
        1
        """
        count = max(1, round_half_up(self.fraction * len(members)))
        return set(random.Random(f"{self.seed} {round}").sample(members, count))

    def due(self, state: Client) -> bool:
        if state.samples >= self.samples if self.samples else state.steps >= self.steps:
            return True
        return not state.idle_round and state.place.rank not in self.draw(state.place.members, state.group.completed)

    def join(self, state: Client) -> list[Tell]:
        state.chosen += state.steps > 0
        return self.begin(state, state.local.x, float(state.samples), keeps=True)

    def conclude(self, state: Client) -> None:
        state.idle_round = not state.trained
        if state.trained or state.newcomers:
            state.group.mean(state.local.x)

    def spare(self, state: Client) -> bool:
        """Who is not chosen waits for as long as the chosen train."""
        return state.begun and state.lent

    def figures(self, state: Client) -> dict[str, float]:
        return {**super().figures(state), "rounds_trained": float(state.chosen)}


def round_half_up(value: float) -> int:
    return int(value + 0.5)
