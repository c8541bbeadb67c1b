"""The consoles of commands: results to standard output, progress, messages and the log to standard error. Where that
cannot be written to, they are lost, and the run is not."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any, TextIO, cast

from rich.console import Console
from rich.text import Text

from taut.supervisor.storage.store_writer import plain


def results() -> Console:
    """Return the console for results: standard output, wide enough for a table when it is no terminal."""
    console = ProseConsole(highlight=False)
    elsewhere = shutil.get_terminal_size((110, 25)).columns  # COLUMNS, where it is set
    return console if console.is_terminal else Console(highlight=False, width=elsewhere)


def notes() -> Console:
    """Return the console for progress and messages: standard error.

    It redraws only on a real terminal. FORCE_COLOR asks for colours, not for a display that is redrawn in a file.
    """
    stderr = cast("IO[str]", StandardError())
    colors = Console(file=stderr, force_jupyter=False).color_system  # as rich reads TERM, NO_COLOR and FORCE_COLOR
    return ProseConsole(
        file=stderr,
        highlight=False,
        force_terminal=stderr.isatty(),
        force_jupyter=False,
        color_system=cast("Any", colors),
    )


def print_json(record: Any) -> None:
    """Print the one object of ``--json``."""
    sys.stdout.write(json.dumps(plain(record), indent=2) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def status(doing: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is done during the block, with a text that the yielded function adds."""
    console = notes()
    if quiet or not console.is_terminal:
        yield lambda text: None
        return
    from rich.status import Status

    with Status(doing, console=console) as shown:
        yield lambda text: shown.update(f"{doing}{text}")


def set_up_log(level: str) -> None:
    """Show taut's own log records of ``level`` and above on standard error. The root logger stays the user's."""
    logger = logging.getLogger("taut")
    logger.setLevel(level.upper())
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)


def broken(text: Text, width: int) -> Text:
    """Return ``text`` with line ends in place of blanks, so that no line is longer than ``width`` but for one with a word
    that is: a long path stays whole.

    >>> broken(Text("the model is /a/path, saved"), 12).plain
    'the model is\\n/a/path,\\nsaved'
    >>> broken(Text("model: /a/very/long/path"), 12).plain
    'model: /a/very/long/path'
    """
    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        begins, starts = 0, []
        for word in re.finditer(r"\S+", line.plain):
            if word.end() - begins > width and word.start() > begins and len(word[0]) <= width:
                starts.append(begins := word.start())
        for piece in line.divide(starts):
            piece.rstrip()
            lines.append(piece)
    return Text("\n").join(lines)


class ProseConsole(Console):
    """A console that breaks long lines of text between words on a terminal, and nowhere else.

    Text that is printed with ``soft_wrap`` is broken; a line that somebody may copy into a shell is printed with
    ``no_wrap=True``, too, and stays one line.
    """

    def print(self, *objects: Any, **how: Any) -> None:
        if self.is_terminal and how.get("soft_wrap") and not how.get("no_wrap"):
            texts = [
                self.render_str(each, markup=how.get("markup")) if isinstance(each, str) else each for each in objects
            ]
            objects = tuple(broken(each, self.width) if isinstance(each, Text) else each for each in texts)
        super().print(*objects, **how)


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
