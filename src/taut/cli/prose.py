"""Text that is longer than a line of the terminal, broken between words."""

from __future__ import annotations

import re
from typing import Any

from rich.console import Console
from rich.text import Text


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
