"""Ctrl-C while a command is still being imported: nothing has begun, so the process ends at once, with one line.

Little of the standard library and nothing else, since this comes before all other imports."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType

INTERRUPTED = 130


class EarlyInterrupt:
    """A block in which Ctrl-C ends the process with exit code 130; after the block, Ctrl-C does what it did before. A
    handler that is not Python's own (a shell's background job ignores Ctrl-C) is left alone.

    >>> with EarlyInterrupt():
    ...     import decimal
    """

    def __enter__(self) -> None:
        self._quiet = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._quiet:
            signal.signal(signal.SIGINT, _end)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._quiet:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)  # an exception could be caught, or told with its traceback, by whatever is being imported
