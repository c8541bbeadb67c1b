"""Balancing, the coordinator's part of dynamic averaging: can those who strayed be brought back among themselves?"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from taut.strategies.api import Vector


@dataclass(frozen=True, slots=True)
class Adopt:
    """These workers go on from this mean."""

    ranks: tuple[int, ...]
    mean: Vector


@dataclass(frozen=True, slots=True)
class Ask:
    """These shall bring their x, too."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Everybody:
    """Balancing has failed, or would cost more than an average of all."""


@dataclass
class DynamicCoordinator:
    """``strays``: who wait for a verdict, and their x; ``asked``: those of whom we asked theirs.

    >>> balance, reference = DynamicCoordinator(), np.zeros(1, np.float32)
    >>> balance.strays[0] = np.float32([3.0])
    >>> asked = balance.verdict(reference, 1.0, range(8)); asked
    Ask(ranks=(7,))
    >>> balance.strays[7] = np.float32([-2.0])
    >>> balance.verdict(reference, 1.0, range(8))
    Adopt(ranks=(0, 7), mean=array([0.5], dtype=float32))
    """

    strays: dict[int, Vector] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    random: random.Random = field(default_factory=lambda: random.Random(0))

    def keep(self, members: Sequence[int]) -> None:
        """Forget who is gone."""
        self.strays = {rank: x for rank, x in self.strays.items() if rank in members}
        self.asked &= set(members)

    def verdict(self, reference: Vector, threshold: float, members: Sequence[int]) -> Adopt | Ask | Everybody | None:
        """What to do about the strays. None: nothing yet, or nothing at all."""
        if not self.strays or not self.asked <= self.strays.keys():
            return None
        ranks = tuple(sorted(self.strays))
        mean: Vector = np.zeros_like(reference)
        for rank in ranks:
            mean += self.strays[rank] / np.float32(len(ranks))
        if within(mean, reference, threshold):
            self.strays, self.asked = {}, set()
            return Adopt(ranks, mean)
        others = [rank for rank in members if rank not in self.strays]
        if 2 * len(ranks) > len(members):
            self.strays, self.asked = {}, set()
            return Everybody()
        more = tuple(sorted(self.random.sample(others, len(ranks))))
        self.asked |= set(more)
        return Ask(more)


def within(x: Vector, reference: Vector, threshold: float) -> bool:
    """|x - ref|^2 <= D. What is not finite is never within.

    >>> within(np.float32([3, 4]), np.float32([0, 0]), 25.0), within(np.float32([3, 4]), np.float32([0, 0]), 24.9)
    (True, False)
    """
    away = x - reference
    return bool(np.dot(away, away) <= threshold)
