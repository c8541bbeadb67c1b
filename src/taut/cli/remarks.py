"""Standard error for progress and remarks: where it cannot be written to, they are lost, and the run is not."""

from __future__ import annotations

import contextlib
import io
import sys


class Remarks(io.TextIOBase):
    """Writes to standard error as it is at that moment. A full disk, a terminal that is gone and a broken pipe are no
    reasons for training to end.

    >>> Remarks().write("")
    0
    """

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only: it is standard error's
        return getattr(sys.stderr, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # also: closed, or none from the start
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()

    def isatty(self) -> bool:
        return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()

    def fileno(self) -> int:
        return sys.stderr.fileno()
