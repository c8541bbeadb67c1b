"""File descriptors in reserve, so that the run's files can be written when connections have taken all others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SPARE = 24  # importing torch and writing both files of a model takes a few at a time
WAIT_S = 10.0  # for others to close descriptors
LOOK_S = 0.05


class Spare:
    """Descriptors that are held until they are needed.

    >>> spare = Spare(number=3)
    >>> with spare.used():
    ...     len(spare)
    0
    >>> len(spare); spare.close()
    3
    """

    def __init__(self, number: int = SPARE) -> None:
        self._number = number
        self._held: list[int] = []
        self._hold()

    def __len__(self) -> int:
        return len(self._held)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Free the descriptors for files that are opened within the block; take them back afterwards. If other
        threads took them first, wait until so many can be opened, ``WAIT_S`` at most."""
        deadline = time.monotonic() + WAIT_S
        self._hold()
        while len(self._held) < self._number and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            self._hold()
        self.close()
        try:
            yield
        finally:
            self._hold()

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop())

    def _hold(self) -> None:
        with suppress(OSError):  # no more are free
            while len(self._held) < self._number:
                self._held.append(os.open(os.devnull, os.O_RDONLY))
