"""Early stopping: a run ends when its score has not become better for some evaluations, or a script says so. Pure.

    better_t:  s_t > best + delta    (s_t < best - delta where a lower score is better)
    stop at t: none of the last ``patience`` evaluations was better

An evaluation whose score is not finite is not better.
"""

from __future__ import annotations

import math

from msgspec import Struct

BEST_MODEL = "best.safetensors"  # in the run's folder: the model of the best evaluation


class EarlyStopping(Struct):
    """The best score so far, and how many evaluations have passed since. ``patience`` 0: no score stops the run.
    ``asked``: the reason for which the main worker's script asked for the end.

    >>> rule = EarlyStopping(patience=2)
    >>> [rule.heard(step, score, lower=False) for step, score in ((10, 0.5), (20, 0.5), (30, 0.7))]
    [True, False, True]
    >>> rule.heard(40, 0.6, False), rule.heard(50, None, False), rule.reason
    (False, False, 'stopped early: no better score in 2 evaluations since 0.7 after 30 steps')
    """

    patience: int = 0
    delta: float = 0.0
    best: float | None = None
    step: int = 0  # of the best score
    since: int = 0  # evaluations that were not better
    asked: str = ""

    def heard(self, step: int, score: float | None, lower: bool) -> bool:
        """Take the score of an evaluation after ``step`` steps; None: it was not finite. Return whether it is better."""
        if score is None:
            self.since += 1
            return False
        gain = math.inf if self.best is None else (self.best - score if lower else score - self.best)
        if gain <= self.delta:
            self.since += 1
            return False
        self.best, self.step, self.since = score, step, 0
        return True

    @property
    def reason(self) -> str:
        """Return why to stop now; an empty text if there is no reason."""
        if self.asked or not self.patience or self.since < self.patience:
            return self.asked
        since = "" if self.best is None else f" since {self.best:g} after {self.step} steps"
        return f"stopped early: no better score in {self.patience} evaluations{since}"
