"""How fast the workers of a round compute, as a sum: what a worker's share of the global batch follows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundSpeeds:
    """The sums over all ``workers`` of a round: ``total`` of the speeds (samples per second of computing) of those
    ``known`` ones that have measured theirs. ``own``: what this worker gave; 0: unknown."""

    total: float
    known: float
    workers: int
    own: float = 0.0
