"""The random states of a process, as plain values: Python's, NumPy's, torch's on the host and on each GPU."""

from __future__ import annotations

import random
from typing import Any

import numpy as np


def random_states() -> dict[str, Any]:
    """As they are now.

    >>> import torch
    >>> before = random_states(); drawn = (random.random(), float(np.random.rand()), float(torch.rand(())))
    >>> put_back_random_states(before); drawn == (random.random(), float(np.random.rand()), float(torch.rand(())))
    True
    """
    import torch

    legacy: Any = np.random.get_state(legacy=False)
    return {
        "python": random.getstate(),
        "numpy": {**legacy, "state": {**legacy["state"], "key": legacy["state"]["key"].tolist()}},
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if _uses_gpus() else [],
    }


def _uses_gpus() -> bool:
    import torch

    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def put_back_random_states(states: dict[str, Any]) -> None:
    """As they were."""
    import torch

    random.setstate(states["python"])
    legacy = states["numpy"]
    np.random.set_state({**legacy, "state": {**legacy["state"], "key": np.array(legacy["state"]["key"], np.uint32)}})
    torch.set_rng_state(states["torch"])
    cuda = states["cuda"]
    if cuda and torch.cuda.is_available() and torch.cuda.device_count() == len(cuda):
        torch.cuda.set_rng_state_all(cuda)
