"""A second supervisor that waits beside a run and takes over when the first is gone.

It watches the run's store, in the same folder (on one machine, or on a file system that both share): the first
supervisor writes there once a second. The silence that counts as death follows from the intervals of these writes, as for
workers; on the same host, a process that has ended is noticed at once.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from taut.core.clock import Clock, MonotonicClock
from taut.core.failure_detector import Detector, DetectorSettings
from taut.supervisor.storage.store_reader import alive, opened

LOOK_S = 0.25
# The store is written once a second; a file system may stall for a moment.
SETTINGS = DetectorSettings(threshold=16.0, floor=0.5, prior_s=1.0)

Seen = Literal["waiting", "living", "gone", "over"]


class Standby:
    """Failure detector for the supervisor of the run in ``run_dir``."""

    def __init__(self, run_dir: Path, clock: Clock | None = None) -> None:
        self.run_dir, self._clock = Path(run_dir), clock or MonotonicClock()
        self._detector: Detector | None = None
        self._beat: tuple[int, float] | None = None
        self.holder = ("", 0)  # the host and the process number that the store names

    @property
    def term(self) -> int | None:
        """Return the term of the supervisor that was seen last."""
        return None if self._beat is None else self._beat[0]

    def look(self) -> Seen:
        """Return the state of the first supervisor."""
        found = self._read()
        if found is None:
            return "waiting"
        outcome, host, pid, term, beat = found
        self.holder = (host, pid)
        if outcome:
            return "over"
        now = self._clock.now()
        if self._detector is None:
            self._detector = Detector(now, SETTINGS)
        if (term, beat) != self._beat:
            self._beat = (term, beat)
            self._detector.beat(now)
        if not alive(host, pid):
            return "gone"
        return "gone" if self._detector.suspects(now) else "living"

    def beats(self, pause: Callable[[float], object] = time.sleep) -> bool:
        """Return whether the supervisor lives, wherever it is: wait until it writes again, or should have."""
        seen, before = self.look(), self._beat
        while seen == "living" and self._beat == before:
            pause(LOOK_S)
            seen = self.look()
        return seen == "living"

    def _read(self) -> tuple[str | None, str, int, int, float] | None:
        try:
            with opened(self.run_dir) as database:
                run = database.execute("select outcome, host, pid from run").fetchone()
                memory = database.execute("select term, beat from memory").fetchone()
        except sqlite3.Error:
            return None  # not there, or being written for the first time
        return None if run is None or memory is None else (*run, *memory)
