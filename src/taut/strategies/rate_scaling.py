"""Learning rates that follow the number of workers: the linear scaling rule, or its square root. Pure.

    lr' = lr n / m            ``linear``, for SGD
    lr' = lr sqrt(n / m)      ``sqrt``, for Adam and its like

n: the workers now, or those of the round where gradients are exchanged in rounds, so that all replicas scale alike.
m: the workers that the script's learning rate is meant for. By default those that the run starts with.

Papers: Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", arXiv:1706.02677 (linear);
Malladi et al. 2022, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", arXiv:2205.10287 (square root).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taut.errors import Misuse
from taut.specs import did_you_mean

EXPONENTS = {"linear": 1.0, "sqrt": 0.5}
MOST_WORKERS = 65_536


@dataclass(frozen=True, slots=True)
class RateScaling:
    """``workers``: m; 0: those that the run starts with.

    >>> RateScaling("linear", 4).factor(6), RateScaling("sqrt", 4).factor(1), RateScaling("linear", 3).factor(3)
    (1.5, 0.5, 1.0)
    """

    rule: str
    workers: int = 0

    def factor(self, workers: int) -> float:
        """Return by what to scale the learning rates, with so many workers."""
        ratio: float = (max(1, workers) / max(1, self.workers)) ** EXPONENTS[self.rule]
        return ratio

    def meant_for(self, workers: int) -> RateScaling:
        """Return the same rule, for a run that starts with so many workers, if no other number was given."""
        return self if self.workers else RateScaling(self.rule, workers)

    def __str__(self) -> str:
        return f"{self.rule}:{self.workers}" if self.workers else self.rule


def scaling_in(settings: Mapping[str, Any], workers: int) -> RateScaling | None:
    """Return the scaling that these settings of a run of ``workers`` ask for, if they do."""
    written = settings.get("scale_lr")
    return parse_rate_scaling(written).meant_for(workers) if written else None


def parse_rate_scaling(given: object, blame: str = "--scale-lr") -> RateScaling:
    """Read ``linear``, ``sqrt``, or either with the number of workers that the script's rate is meant for.

    >>> str(parse_rate_scaling("linear")), parse_rate_scaling("sqrt:8")
    ('linear', RateScaling(rule='sqrt', workers=8))
    >>> parse_rate_scaling("liner")
    Traceback (most recent call last):
    taut.errors.Misuse: --scale-lr = 'liner': expected linear or sqrt, or with workers: linear:8; did you mean 'linear'?
    """
    rule, colon, number = given.strip().partition(":") if isinstance(given, str) else ("", "", "")
    right = rule in EXPONENTS and (not colon or (number.isascii() and number.isdecimal() and len(number) < 6))
    workers = int(number) if right and colon else 0
    if not right or (colon and not 1 <= workers <= MOST_WORKERS):
        expected = "linear or sqrt, or with workers: linear:8"
        raise Misuse(
            f"{blame} = {given!r}", expected, did_you_mean(rule, list(EXPONENTS)) if rule not in EXPONENTS else ""
        )
    return RateScaling(rule, workers)
