"""The coordinator of dynamic averaging: average the workers that strayed, if their mean is close to the reference."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from taut.strategies.api import Vector

MARGIN = 0.5  # of the threshold: a mean just within it would be beyond it at the next check


@dataclass(frozen=True, slots=True)
class Verdict:
    """Let ``ranks`` go on from ``mean``; without a mean, ask them for their x, too; without ranks, average over all
    workers: balancing has failed, or would cost more."""

    ranks: tuple[int, ...] = ()
    mean: Vector | None = None


@dataclass
class DynamicCoordinator:
    """The coordinator's state. ``strays``: x of the workers that wait for a verdict; ``asked``: those asked for x.

    >>> balance, reference = DynamicCoordinator(), np.zeros(1, np.float32)
    >>> balance.strays[0] = np.float32([3.0])
    >>> asked = balance.verdict(reference, 1.0, range(8)); asked
    Verdict(ranks=(7,), mean=None)
    >>> balance.strays[7] = np.float32([-2.0])
    >>> balance.verdict(reference, 1.0, range(8))
    Verdict(ranks=(0, 7), mean=array([0.5], dtype=float32))
    """

    strays: dict[int, Vector] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    random: random.Random = field(default_factory=lambda: random.Random(0))

    def keep(self, members: Sequence[int]) -> None:
        self.strays = {rank: x for rank, x in self.strays.items() if rank in members}
        self.asked &= set(members)

    def verdict(self, reference: Vector, threshold: float, members: Sequence[int]) -> Verdict | None:
        """Return what to do about the strays; None if there is nothing to do yet."""
        if not self.strays or not self.asked <= self.strays.keys():
            return None
        ranks = tuple(sorted(self.strays))
        mean: Vector = np.zeros_like(reference)
        for rank in ranks:
            mean += self.strays[rank] / np.float32(len(ranks))
        if within(mean, reference, MARGIN * threshold):
            self.strays, self.asked = {}, set()
            return Verdict(ranks, mean)
        others = [rank for rank in members if rank not in self.strays]
        if 2 * len(ranks) > len(members):
            self.strays, self.asked = {}, set()
            return Verdict()
        more = tuple(sorted(self.random.sample(others, len(ranks))))
        self.asked |= set(more)
        return Verdict(more)


def within(x: Vector, reference: Vector, threshold: float) -> bool:
    """Return whether |x - ref|^2 <= D; never if x is not finite.

    >>> within(np.float32([3, 4]), np.float32([0, 0]), 25.0), within(np.float32([3, 4]), np.float32([0, 0]), 24.9)
    (True, False)
    """
    away = x - reference
    return bool(np.dot(away, away) <= threshold)
