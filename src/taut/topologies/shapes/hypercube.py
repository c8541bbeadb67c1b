"""The hypercube: two positions are wired where their numbers differ in one bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taut.errors import Misuse
from taut.topologies.graph import Graph
from taut.topologies.shape import Shape, from_positions


@dataclass(frozen=True)
class Hypercube(Shape):
    """log2(n) neighbours each, log2(n) steps to anyone.

    It must start with a power of two. When workers have left, the positions 0 to n - 1 of the next larger cube are wired
    (an incomplete hypercube; Katseff, 1988). That is connected: clearing the highest bit of a position leads along an
    edge to a lower one, which is taken, and so down to position 0.

    >>> Hypercube().wire(range(8)).neighbours(5)
    [1, 4, 7]
    """

    name = "hypercube"

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        workers = len(set(members))
        bits = range((workers - 1).bit_length())
        return from_positions(
            members, [(s, s | 1 << bit) for s in range(workers) for bit in bits if s < s | 1 << bit < workers]
        )

    def check(self, workers: int) -> None:
        super().check(workers)
        if workers & (workers - 1):
            below = 1 << workers.bit_length() - 1
            remedy = f"use {below} or {2 * below} workers, or exponential, which takes any number"
            raise Misuse(f"hypercube with {workers} workers", "a power of two", remedy)
