"""Evaluations in the course of a run: one worker scores a copy of its replica, while all train on.

The main worker (the lowest rank) does so, every so many seconds, steps or passes of its own, in a thread beside the
training thread. An evaluation that is due while one is under way begins when that is over. Should the worker die, the
next one takes over. The supervisor keeps the scores, and ends the run where they no longer become better
(``core/early_stopping.py``).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from taut.core.clock import Clock
from taut.core.messages import Validated
from taut.errors import Misuse
from taut.specs import Interval, parse_interval
from taut.worker.best_model import keep_best
from taut.worker.model.flat_params import saved_tensors
from taut.worker.validation import Validation

if TYPE_CHECKING:
    from torch import nn

log = logging.getLogger("taut")


class Evaluation:
    """Calls the validation function of ``validation`` every ``interval``; ``say`` sends a score to the supervisor. The
    best model is kept in the file ``best``. ``beside``: in a thread beside training; else at once, which takes no time in
    a simulation. All methods belong to the training thread."""

    def __init__(
        self,
        validation: Validation,
        interval: str,
        say: Callable[[Validated], None],
        clock: Clock,
        best: Path | None = None,
        beside: bool = True,
    ) -> None:
        if validation.validate is None:
            raise Misuse(
                f"--validate-every {interval} with a script that has no validation function",
                "taut.join(model, optimizer, validate=...), a function that takes the model and gives a number",
                "or leave --validate-every out",
            )
        self._validation, self._say, self._clock = validation, say, clock
        self._best, self._beside = best, beside
        self._every: Interval = parse_interval(interval, "validate_every")
        self._last = clock.now() if not self._every.counted else math.nan
        self._waits = False  # training, for each evaluation
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: Future[Validated] | None = None

    def after_step(self, model: nn.Module, steps: int, passes: int, mine: bool) -> None:
        """Send the score that is there, and begin an evaluation of the ``model`` if one is due. ``passes``: those that
        this worker is through with; ``mine``: this worker is the one that evaluates."""
        if self._under_way is not None and self._under_way.done():
            self.finish()
        if not self._due(steps, passes, mine):
            return
        try:
            copied = deepcopy(model)
        except Exception as error:  # locks or generators, in a hook of the script's own
            if not self._waits:
                why = f"{type(error).__name__}: {error}"
                log.warning("--validate-every: training waits meanwhile, since the model cannot be copied (%s)", why)
            self._waits = True
            self._say(self._scored(model, steps))
            return
        if not self._beside:
            self._say(self._scored(copied, steps))
            return
        self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="taut-validate")
        self._under_way = self._thread.submit(self._scored, copied, steps)

    def _due(self, steps: int, passes: int, mine: bool) -> bool:
        """Return whether to begin an evaluation now. A worker that does not evaluate keeps count, too."""
        if self._under_way is not None:
            return False
        if not self._every.counted:
            now = self._clock.now()
            due = now - self._last >= self._every.amount
            self._last = now if due else self._last
            return due and mine
        position = self._every.floor(float(steps if self._every.unit == "steps" else passes))
        before = self._every.floor(steps - 1.0) if self._every.unit == "steps" else position
        last, self._last = before if math.isnan(self._last) else self._last, position
        return position > last and mine

    def _scored(self, model: nn.Module, steps: int) -> Validated:
        device = next(model.parameters()).device
        if device.type == "cuda":
            torch.cuda.set_device(device)  # each thread has one of its own
        began_s = self._clock.now()
        once = Validation(self._validation.validate, self._validation.better)
        score = once.score(model)
        score = score if score is not None and math.isfinite(score) else None
        lower = self._validation.better == "lower"
        if score is not None and self._best is not None:
            keep_best(self._best, saved_tensors(model), score, steps, lower)
        return Validated(steps, score, lower, max(0.0, self._clock.now() - began_s), once.note())

    def finish(self) -> None:
        """Send the score of the evaluation that is under way; wait for it if need be."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            self._say(under_way.result())

    def close(self) -> None:
        """End: no further evaluation begins."""
        if self._thread is not None:
            self._thread.shutdown()
