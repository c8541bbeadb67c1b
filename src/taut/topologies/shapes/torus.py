"""The 2-D torus: rows and columns of workers, each row and each column a ring."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from taut.errors import Misuse
from taut.topologies.graph import Graph
from taut.topologies.repair import ring_of
from taut.topologies.shape import Shape, from_positions

_SIZE = re.compile(r"(\d{1,9})\s*[x×]\s*(\d{1,9})")


@dataclass(frozen=True)
class Torus(Shape):
    """Rows x columns, four neighbours each (three where one side is 2; a ring where one is 1).

    Position s lies in row s // columns and column s % columns. Where the number of workers does not fill the last row, a
    column that ends early closes its ring one row before: the first row is whole, and every column begins in it, so the
    grid is connected for any number. Degrees stay 4 or fall, never rise.

    Arguments:
        rows, columns: the size at the start, which must fit exactly. As workers come and go, the columns stay, and the
            number of rows follows. With neither given, it is the most square size that fits exactly and is at most
            twice as wide as high, else floor(sqrt(n)) rows and a last row that is not full. So it changes with the
            number of workers.

    >>> torus = Torus(rows=3, columns=4)
    >>> torus.wire(range(12)).neighbours(0)
    [1, 3, 4, 8]
    >>> torus.wire([rank for rank in range(12) if rank != 5]).neighbours(11)  # 11 has taken the position of 5
    [1, 4, 6, 9]
    """

    name = "torus"
    advised = "torus"
    rows: int | None = None
    columns: int | None = None

    def __post_init__(self) -> None:
        for what, value in (("rows", self.rows), ("columns", self.columns)):
            if value is not None and value < 1:
                raise Misuse(f"torus: {what}={value}", "a whole number from 1", "or leave it out")

    @classmethod
    def from_short(cls, text: str) -> Self | None:
        size = _SIZE.fullmatch(text)
        return cls(int(size[1]), int(size[2])) if size else None

    def size(self, workers: int) -> tuple[int, int]:
        """Return rows and columns for this many workers; the last row may not be full.

        >>> Torus().size(12), Torus().size(11), Torus(rows=2).size(12), Torus(3, 4).size(11)
        ((3, 4), (3, 4), (2, 6), (3, 4))
        """
        if self.columns is not None:
            columns = self.columns
        elif self.rows is not None:
            columns = math.ceil(workers / self.rows)
        else:
            columns = squarest(workers)[1]
            if columns > 2 * (workers // columns):
                columns = math.ceil(workers / math.isqrt(workers))
        return math.ceil(workers / columns), columns

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        workers = len(set(members))
        rows, columns = self.size(workers)
        edges = []
        for row in range(rows):
            edges += ring_of(list(range(row * columns, min((row + 1) * columns, workers))))
        for column in range(min(columns, workers)):
            edges += ring_of(list(range(column, workers, columns)))
        return from_positions(members, edges)

    def check(self, workers: int) -> None:
        super().check(workers)
        rows, columns = self.rows, self.columns
        if rows is None and columns is None:
            return
        given = ",".join(f"{key}={value}" for key, value in (("rows", rows), ("columns", columns)) if value is not None)
        if rows is not None and columns is not None:
            fits, expected = rows * columns == workers, f"{rows} x {columns} = {rows * columns} workers"
        else:
            side = rows or columns or 1
            fits, expected = workers % side == 0, f"a number of workers that {side} divides"
        if not fits:
            sizes = ", ".join(f"{small} x {workers // small}" for small in _sides(workers) if small > 1 or workers < 4)
            sizes = sizes or f"only 1 x {workers}, a ring"
            remedy = f"for {workers} workers: {sizes}; or leave rows and columns out"
            raise Misuse(f"torus:{given} with {workers} workers", expected, remedy)


def squarest(workers: int) -> tuple[int, int]:
    """Return the most square size that fits exactly.

    >>> squarest(12), squarest(16), squarest(13)
    ((3, 4), (4, 4), (1, 13))
    """
    rows = _sides(workers)[0]
    return rows, workers // rows


def _sides(workers: int) -> list[int]:
    """Return the shorter sides of all sizes that fit, the most square first."""
    return [side for side in range(math.isqrt(workers), 0, -1) if workers % side == 0]
