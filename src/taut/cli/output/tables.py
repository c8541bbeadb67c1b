"""Tables that fit into the terminal: columns that matter less are left out, and no cell is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from taut.comparison.report.columns import Column
    from taut.comparison.report.table import Row


def print_item(console: Console, text: str) -> None:
    """Print an item of a list: on a terminal in lines that end between words, elsewhere in one."""
    if console.is_terminal:
        item = Table.grid(padding=(0, 1, 0, 0))
        item.add_row("  -", Text(text))
        console.print(item)
    else:
        console.print(f"  - {text}", soft_wrap=True, markup=False)


def fitting_table(rows: Sequence[Row], columns: Sequence[Column], width: int) -> Table:
    """Return the table with as many of ``columns`` as fit into ``width`` characters."""
    from taut.comparison.report.columns import fitting

    chosen = fitting(rows, columns, width)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True)
    for column in chosen:
        justify = "left" if column.words else "right"
        table.add_column(column.title, justify=justify, no_wrap=not column.words, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(escape(column.text(row)) for column in chosen))
    return table
