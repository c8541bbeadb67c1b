"""The model of the best evaluation so far, as a file: early stopping ends a run after its best model.

The file itself says how good it is. So a worker that takes over the evaluations, and a run that is resumed, replace it by
a better one alone.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from taut.core.early_stopping import BEST_MODEL
from taut.core.files import AtomicFile
from taut.worker.model.tensor_file import file_views

log = logging.getLogger("taut")


def place_of(told: str | None, run: str) -> Path:
    """Return where this worker writes the file: in the run's folder, if this user has one at the path that was told; else
    in the present folder, under the run's name."""
    if told is not None:
        try:
            owner = os.stat(Path(told).parent).st_uid
            if not hasattr(os, "geteuid") or owner == os.geteuid():
                return Path(told)
        except OSError:
            pass
    return Path(f"{run}-{BEST_MODEL}").absolute()


def kept_score(path: Path) -> float | None:
    """Return the score of the model in the file; None if there is none."""
    try:
        with safe_open(path, framework="pt") as file:
            return float((file.metadata() or {})["score"])
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def keep_best(path: Path, tensors: Mapping[str, torch.Tensor], score: float, steps: int, lower: bool) -> bool:
    """Write the model if it is better than the one in the file; return whether. Where that cannot be written, training
    goes on.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / BEST_MODEL
    ...     kept = [keep_best(path, {"w": torch.ones(2)}, score, 10, lower=False) for score in (0.5, 0.4, 0.6)]
    ...     kept, kept_score(path)
    ([True, False, True], 0.6)
    """
    best = kept_score(path)
    if best is not None and math.isfinite(best) and not (score < best if lower else score > best):
        return False
    try:
        with AtomicFile(path) as file:
            for view in file_views(tensors, {"score": repr(score), "steps": str(steps)}):
                file.write(view)
    except OSError as error:
        log.warning("the best model so far could not be written: %s", error)
        return False
    return True
