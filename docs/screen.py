"""Draw what a command shows in a real terminal: `python docs/screen.py NAME COMMAND...` writes docs/img/NAME.svg.

The command runs in a pseudo-terminal. The picture shows all its output when it has ended or, with --when PATTERN, at the
moment at which that regular expression is found on the screen.

    python docs/screen.py run taut run -n 2 examples/digits.py --epochs 20
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from html import escape
from itertools import groupby
from pathlib import Path

from pyte.screens import Char

from taut.testing import Terminal

IMAGES = Path(__file__).parent / "img"
WIDTH, HEIGHT, MARGIN = 8.4, 18, 14  # of a character, of a line, around the text; in pixels
BACK, FRONT = "#1e2026", "#d6d8dc"
COLOURS = {  # the names that pyte gives to the colours of a terminal
    "black": "#3c3f46", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b", "blue": "#61afef",
    "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#d6d8dc",
}  # fmt: skip


def colour(name: str) -> str:
    """Return the colour of pyte's ``name``: default, a word, brightWORD, or six hexadecimal digits."""
    return COLOURS.get(name.removeprefix("bright"), FRONT if name == "default" else f"#{name}")


def drawn_row(row: Mapping[int, Char], columns: int, y: float) -> str:
    """Return one line of the screen as SVG texts, one for each run of cells that look alike."""
    texts, x = [], 0
    for (front, bold), cells in groupby((row[column] for column in range(columns)), lambda cell: (cell.fg, cell.bold)):
        text = "".join(cell.data for cell in cells)
        if text.strip():
            start, weight = x + len(text) - len(text.lstrip()), ' font-weight="bold"' if bold else ""
            words = text.strip()
            texts.append(
                f'<text x="{MARGIN + start * WIDTH:.1f}" y="{y:.1f}" textLength="{len(words) * WIDTH:.1f}"'
                f' fill="{colour(front)}"{weight} xml:space="preserve">{escape(words)}</text>'
            )
        x += len(text)
    return "".join(texts)


def drawn(terminal: Terminal, title: str) -> str:
    """Return the SVG of all that the terminal has shown, below ``title``."""
    columns, rows = terminal.screen.columns, terminal.rows[: len(terminal.lines)]
    width, height = 2 * MARGIN + columns * WIDTH, 2 * MARGIN + (len(rows) + 1.5) * HEIGHT
    font = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
        f' font-family="{font}" font-size="14">',
        f'<rect width="100%" height="100%" rx="8" fill="{BACK}"/>',
        f'<text x="{MARGIN}" y="{MARGIN + 12}" fill="{COLOURS["green"]}">$ {escape(title)}</text>',
        *(drawn_row(row, columns, MARGIN + 12 + (place + 1.5) * HEIGHT) for place, row in enumerate(rows)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=80)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument(
        "--when", metavar="PATTERN", help="draw the moment at which this is shown, then let the command end"
    )
    parser.add_argument("--title", help="instead of the command")
    parser.add_argument("--patience", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument("name", help="of the picture, in docs/img")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    title = given.title or shlex.join(given.command)
    with Terminal(given.command, columns=given.columns, rows=given.rows) as terminal:
        if given.when:
            terminal.wait_for(re.compile(given.when).search, given.patience)
            picture = drawn(terminal, title)
        code = terminal.exit_code(given.patience)
        if not given.when:
            picture = drawn(terminal, title)
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / f"{given.name}.svg"
    path.write_text(picture, encoding="utf-8")
    print(f"{path}: exit code {code}")


if __name__ == "__main__":
    main()
