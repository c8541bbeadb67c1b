"""The random states of a process, as plain values and vectors: Python's, NumPy's, torch's on the host and on each GPU."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def random_states() -> dict[str, Any]:
    """Return the random states as they are now.

    >>> before = random_states(); drawn = (random.random(), float(np.random.rand()), float(torch.rand(())))
    >>> put_back_random_states(before); drawn == (random.random(), float(np.random.rand()), float(torch.rand(())))
    True
    """
    version, words, gauss = random.getstate()
    legacy: Any = np.random.get_state(legacy=False)
    return {
        "python": (version, np.array(words, np.uint32).view(np.int32), gauss),
        "numpy": {**legacy, "state": {**legacy["state"], "key": legacy["state"]["key"].view(np.int32)}},
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
    }


def _words(kept: Any) -> Any:
    """Return the 32-bit words without a sign. (Older checkpoints have lists of them.)"""
    return kept.view(np.uint32) if isinstance(kept, np.ndarray) else np.array(kept, np.uint32)


def put_back_random_states(states: dict[str, Any]) -> None:
    version, words, gauss = states["python"]
    random.setstate((version, tuple(_words(words).tolist()), gauss))
    legacy = states["numpy"]
    np.random.set_state({**legacy, "state": {**legacy["state"], "key": _words(legacy["state"]["key"])}})
    torch.set_rng_state(states["torch"])
    cuda = states["cuda"]
    if cuda and torch.cuda.is_available() and torch.cuda.device_count() == len(cuda):
        torch.cuda.set_rng_state_all(cuda)
