"""A clock that is advanced by hand."""

from __future__ import annotations


class FakeClock:
    """Virtual seconds.

    >>> clock = FakeClock(); clock.advance(1.5); clock.now()
    1.5
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        assert seconds >= 0, "time does not go back"
        self._now_s += seconds
