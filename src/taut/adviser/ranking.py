"""The rule by which one combination is recommended. Speed alone decides nothing: workers that never talk are the fastest.

Candidates are listed from the most complete communication to the least (``candidates.py``).

Efficiency is speed as a share of that of workers that never talk.

1. The bar is 90% of the best efficiency of all combinations whose workers share *every step* (the classes synchronous,
   bounded delay, unbounded delay, neighbours).
2. Recommended is the first in the list that reaches the bar: the most complete communication that costs less than 10%.
3. Those that share only now and then (averaging, easgd, diloco) take part, in the bar and in the choice, only where
   nothing else has an efficiency of one half.
4. ``independent`` is never recommended. It is what efficiency is measured by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taut.adviser.candidates import Completeness
from taut.adviser.prediction import Prediction

WITHIN = 0.9  # of the best
HALF = 0.5


@dataclass(frozen=True)
class Advice:
    """``ranked``: the recommended one first, then what reaches the bar in the order of completeness, then the rest by
    speed; of one strategy on several topologies or with several codecs, the best placed one. ``bar``: an efficiency.
    ``known``: all predictions."""

    ranked: tuple[Prediction, ...]
    bar: float
    seldom_allowed: bool
    known: tuple[Prediction, ...] = ()

    @property
    def recommended(self) -> Prediction:
        return self.ranked[0]

    def reaches(self, prediction: Prediction) -> bool:
        eligible = prediction.candidate.completeness <= _last(self.seldom_allowed)
        return prediction.efficiency >= self.bar and eligible


def _last(seldom_allowed: bool) -> Completeness:
    return Completeness.SELDOM if seldom_allowed else Completeness.NEIGHBOURS


def rank(predictions: Sequence[Prediction]) -> Advice:
    """Return ``predictions`` in the order of the list of candidates; at least one of them shares something."""
    every_step = [one for one in predictions if one.candidate.completeness <= Completeness.NEIGHBOURS]
    best = max(one.efficiency for one in every_step)
    seldom_allowed = best < HALF
    able = [one for one in predictions if one.candidate.completeness <= _last(seldom_allowed)]
    bar = WITHIN * max(one.efficiency for one in able)
    advice = Advice((), bar, seldom_allowed)
    above = [one for one in able if advice.reaches(one)]
    talking = [one for one in predictions if one.candidate.completeness is not Completeness.NOTHING]
    below = sorted((one for one in talking if one not in above), key=lambda one: -one.efficiency)
    return Advice(tuple(_once([*above, *below])), bar, seldom_allowed, tuple(predictions))


def _once(ordered: Sequence[Prediction]) -> list[Prediction]:
    """Return the first candidate of every strategy."""
    first: dict[str, Prediction] = {}
    for one in ordered:
        first.setdefault(one.candidate.resolved.strategy.name, one)
    return list(first.values())
