"""A command in a process of its own, whose output is followed line by line."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from forked_zygotes import taut_command

PATIENCE_S = 200.0
JOB = str(Path(__file__).resolve().parents[1] / "integration" / "job.py")


class Command:
    """`taut ARGS` (or `python ARGS`), in the folder ``cwd``. ``said``: its lines so far.

    ``before``: words that start it; ``program``: ``forked`` is ``taut`` in a fork of the tests' server."""

    def __init__(
        self, cwd: Path, *args: str, program: str = "taut", before: Sequence[str] = (), **environment: str
    ) -> None:
        self.said: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        start = [*before, sys.executable, *(["-m", "taut"] if program == "taut" else [])]
        self.process = subprocess.Popen(
            [*(taut_command() if program == "forked" else start), *args],
            cwd=cwd,
            env=os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "200"} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def until(self, pattern: str, times: int = 1) -> str:
        """Wait for the ``times``-th line, counted from the start, that has ``pattern`` in it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = [line for line in self.said if re.search(pattern, line)]
            if len(found) >= times:
                return found[times - 1]
            line = self._next(deadline, pattern)
            assert line is not None, f"it ended without {pattern!r}:\n" + "\n".join(self.said)

    def when(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while the command goes on."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, f"it ended without {what}"
            assert time.monotonic() < deadline, f"no {what} in {PATIENCE_S:.0f} s"
            time.sleep(0.05)

    def _next(self, deadline: float, awaited: str) -> str | None:
        try:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"no {awaited!r} in {PATIENCE_S:.0f} s:\n" + "\n".join(self.said)) from None
        if line is not None:
            self.said.append(line)
        return line

    def end(self) -> int:
        """Wait for its end, and return its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._next(deadline, "end") is not None:
            pass
        return self.process.wait(PATIENCE_S)

    @property
    def text(self) -> str:
        return "\n".join(self.said)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
