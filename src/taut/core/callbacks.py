"""The default of a callback that nobody has set."""

from __future__ import annotations


def do_nothing() -> None:
    """Do nothing."""
