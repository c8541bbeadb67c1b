"""Standard error for progress and messages: where it cannot be written to, they are lost, and the run is not."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any, TextIO, cast


def _stderr() -> TextIO | None:
    """Return standard error as it is now, without the proxy that rich puts there while it redraws a table.

    The proxy hands all text to the console that redraws. A console that wrote to the proxy would call itself for ever.
    """
    stream: Any = sys.stderr
    while (proxied := getattr(stream, "rich_proxied_file", None)) is not None:
        stream = proxied
    return cast("TextIO | None", stream)


class StandardError(io.TextIOBase):
    """Writes to standard error as it is at that moment. A full disk, a terminal that is gone and a broken pipe are no
    reasons for training to end.

    >>> StandardError().write("")
    0
    """

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only: it is standard error's
        return getattr(_stderr(), "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # also: closed, or none from the start
            cast("TextIO", _stderr()).write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            cast("TextIO", _stderr()).flush()

    def isatty(self) -> bool:
        stream = _stderr()
        return stream is not None and not stream.closed and stream.isatty()

    def fileno(self) -> int:
        stream = _stderr()
        if stream is None:
            raise io.UnsupportedOperation("fileno")
        return stream.fileno()
