"""Messages on standard error of a worker that was started by hand: that it joined, its progress, and how it left."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from taut.core.messages import Statistics

if TYPE_CHECKING:
    from taut.worker.comm.comm_thread import CommThread
    from taut.worker.session import WorkerSession

UNANSWERED_S = 3.0  # without an answer, after which the user gets a message
EVERY_S, LATER_EVERY_S, OFTEN_S = 1.5, 10.0, 20.0  # progress: often in the first seconds, then rarely


def progress_line(seconds: float, rank: int, before: Statistics, now: Statistics) -> str:
    """Return one line of progress, with the samples per second since ``before``.

    >>> progress_line(4.0, 2, Statistics(samples=100, wall_s=1), Statistics(steps=40, samples=700, loss=0.5, wall_s=3))
    '[   4.0 s] worker 2: 40 steps, 300 samples/s, loss 0.5000'
    """
    span_s = now.wall_s - before.wall_s
    words = [f"{now.steps:,} steps", f"{(now.samples - before.samples) / span_s if span_s > 0 else 0.0:,.0f} samples/s"]
    words += [] if now.loss is None else [f"loss {now.loss:.4f}"]
    return f"[{seconds:6.1f} s] worker {rank}: {', '.join(words)}"


class ConsoleLines:
    """Reports on the worker of this process, from a thread of its own.

    ``say`` writes a line; if standard error cannot be written to, the line is lost and the training goes on.
    """

    def __init__(self, supervisor: str, say: Callable[[str], None] | None = None) -> None:
        self.supervisor = supervisor
        self.comm: CommThread | None = None  # set as soon as there is one
        self._say = say or _to_standard_error
        self._session: WorkerSession | None = None
        self._over = threading.Event()
        self._began_s = time.monotonic()
        threading.Thread(target=self._run, name="taut-console-lines", daemon=True).start()

    def joined(self, session: WorkerSession) -> None:
        """Report that the worker is in the run; or that it is back, if it was before."""
        came = "back in" if self._session is not None else "joined"
        self._session = session
        workers = session.settings.get("workers", "?")
        start = f"it starts with {workers} worker{'' if workers == 1 else 's'}"
        self._say(f"{came} run {session.run} as worker {session.comm.rank}; {start}")

    def left(self, how: str) -> None:
        """Report how the worker left the run; nothing more is reported."""
        if self._session is None or self._over.is_set():
            return
        self._over.set()
        made = self._session.statistics()
        self._say(f"worker {self._session.comm.rank}: {how}; {made.steps:,} steps, {made.samples:,} samples")

    def _run(self) -> None:
        before, told, waited_s = Statistics(), False, 0.0
        while not self._over.wait(EVERY_S if waited_s < OFTEN_S else LATER_EVERY_S):
            waited_s = time.monotonic() - self._began_s
            if self._session is not None and (now := self._session.statistics()).steps > before.steps:
                self._say(progress_line(waited_s, self._session.comm.rank, before, now))
                before = now
            elif waited_s > UNANSWERED_S and self.comm is not None and self.comm.status.welcome is None and not told:
                told = True
                self._say(
                    f"no answer from {self.supervisor} for {waited_s:.0f} s: is that the address that `taut supervisor` "
                    "shows, and does the supervisor still run? Trying again; Ctrl-C stops"
                )


def _to_standard_error(line: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # full, closed, or none at all
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
