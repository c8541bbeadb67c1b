"""Kernels for NumPy vectors, in numba.

A module of kernels is imported when it is first used, as in ``cpu.levels.multiply``: numba takes a while to import, and
most processes never encode anything.
"""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
