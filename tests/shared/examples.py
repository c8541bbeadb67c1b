"""How many examples a law has whose single example is dear: a history of hundreds of random steps, or large arrays."""

from __future__ import annotations

QUICK = False  # set by conftest.py for `make test`


def some(most: int) -> int:
    """Return ``most`` for `make test-all`; a third of them, and at least four, for `make test`."""
    return max(most // 3, min(most, 4)) if QUICK else most
