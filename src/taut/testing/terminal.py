"""A command in a real terminal: a pseudo-terminal whose screen is rendered, so that tests see what a user sees.

It needs the package ``pyte`` (`pip install 'taut[dev]'`) and a system with pseudo-terminals.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pyte

CTRL_C = "\x03"
PATIENCE_S = 60.0
DRAIN_S = 5.0  # for the rest of the output, once the command has ended
SCROLLED_LINES = 10_000  # lines that were scrolled off the top and are kept

# Make the pseudo-terminal the controlling one, so that Ctrl-C reaches the command as a signal, and become the command.
# Variables about this process's own terminal, and settings of taut, are not passed on.
_CONTROLLED = """
import fcntl, json, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
other = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
own = {name: value for name, value in os.environ.items() if name not in other and not name.startswith("TAUT_")}
os.execvpe(sys.argv[2], sys.argv[2:], own | {"TERM": "xterm-256color"} | json.loads(sys.argv[1]))
"""


class _Screen(pyte.HistoryScreen):
    """A screen that notes which of its lines were longer than it is wide."""

    def __init__(self, columns: int, lines: int) -> None:
        self.wrapped: list[str] = []
        super().__init__(columns, lines, history=SCROLLED_LINES, ratio=0.5)

    def draw(self, data: str) -> None:
        for character in data:
            if self.cursor.x == self.columns:
                self.wrapped.append(_text(self.buffer[self.cursor.y], self.columns))
            super().draw(character)


class Terminal:
    """Run ``command`` in a pseudo-terminal of ``columns`` x ``rows``, render its output, and send it keys.

    ``environment`` is added to this process's own, without variables about its terminal and ``TAUT_...`` settings.

    >>> with Terminal([sys.executable, "-c", "print(input('name? ').upper())"], columns=40) as terminal:
    ...     terminal.wait_for("name?")
    ...     terminal.press("ada\\r")
    ...     terminal.exit_code(), terminal.lines
    (0, ['name? ada', 'ADA'])
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 80,
        rows: int = 24,
        cwd: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.screen = _Screen(columns, rows)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", _CONTROLLED, json.dumps(dict(environment or {})), *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            start_new_session=True,
        )
        os.close(slave)
        self._over = False
        self._changed = threading.Condition(threading.RLock())
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    @property
    def rows(self) -> list[Mapping[int, pyte.screens.Char]]:
        """Return all rows of cells that are on the screen or were scrolled off its top."""
        return [*self.screen.history.top, *(self.screen.buffer[row] for row in range(self.screen.lines))]

    @property
    def lines(self) -> list[str]:
        """Return the text of all rows, without empty ones at the end."""
        with self._changed:
            lines = [_text(row, self.screen.columns) for row in self.rows]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def wrapped(self) -> list[str]:
        """Return the first screen line of every line that was longer than the screen is wide."""
        return self.screen.wrapped

    def press(self, keys: str) -> None:
        """Send keys, as the keyboard would: ``CTRL_C`` becomes SIGINT, "\\r" is Enter."""
        os.write(self._master, keys.encode())

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to the command."""
        self.process.send_signal(number)

    def wait_for(self, text: str | Callable[[str], Any], patience_s: float = PATIENCE_S) -> None:
        """Wait until the screen shows ``text``, or until ``text(screen)`` is true."""

        def shown() -> bool:
            return bool(text(self.text) if callable(text) else text in self.text)

        with self._changed:
            self._changed.wait_for(lambda: shown() or self._over, patience_s)
            if not shown():
                raise AssertionError(f"{text!r} is not on the screen (exit code {self.process.poll()}):\n{self.text}")

    def exit_code(self, patience_s: float = PATIENCE_S) -> int:
        """Wait until the command has ended and return its exit code, negative for a signal."""
        try:
            code = self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended after {patience_s:.0f} s:\n{self.text}") from None
        self._reader.join(DRAIN_S)  # a process that the command left behind may have the terminal open
        return code

    def _read(self) -> None:
        """Render the output until the last process that has the terminal open has closed it."""
        while True:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:  # Linux reports the end so
                data = b""
            with self._changed:
                self.raw += data
                self._stream.feed(data)
                self._over = not data
                self._changed.notify_all()
            if not data:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(DRAIN_S)
        os.close(self._master)


def _text(row: Mapping[int, pyte.screens.Char], columns: int) -> str:
    return "".join(row[column].data for column in range(columns)).rstrip()
