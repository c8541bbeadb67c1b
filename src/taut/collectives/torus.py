"""2-D torus all-reduce: rings along the rows, and, for each position's share of them, rings along the columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from taut.collectives.ring import all_gather, reduce_scatter, ring_bytes
from taut.collectives.schedule import ELEMENT_NBYTES, Round, Schedule, chunk
from taut.errors import Misuse


@dataclass(frozen=True)
class Torus(Schedule):
    """The ring's bytes at far fewer rounds, over four neighbours.

    The p positions stand in X rows of Y, position i in row i // Y and column i % Y. Each row sums its chunks as a ring
    does, which leaves every position one chunk of Y; a ring along the column all-reduces that; then the row hands out.

        cost = (2(X-1) + 2(Y-1)) a + 2(p-1)/p n b

    ``rows``: X, which must divide p; without it, the largest divisor of p up to sqrt(p). A prime p has only the ring.

    Mikami, Suganuma, U-chupala, Tanaka and Kageyama, Massively distributed SGD, 2018.

    >>> Torus().shape(12), Torus().shape(7), Torus().rounds(12)
    ((3, 4), (1, 7), 10)
    """

    rows: int | None = None
    name = "torus"

    def shape(self, p: int) -> tuple[int, int]:
        if self.rows is None:
            rows = next(rows for rows in range(math.isqrt(p), 0, -1) if p % rows == 0)
        elif self.rows < 1 or p % self.rows:
            fitting = ", ".join(str(rows) for rows in range(1, p + 1) if p % rows == 0)
            raise Misuse(f"a torus of {self.rows} rows with {p} workers", f"rows that divide {p}", f"try {fitting}")
        else:
            rows = self.rows
        return rows, p // rows

    def exchanges(self, p: int, position: int, length: int) -> Iterator[Round]:
        columns = self.shape(p)[1]
        row, column = divmod(position, columns)
        along = range(row * columns, (row + 1) * columns)
        across = range(column, p, columns)
        mine = chunk(0, length, columns, column + 1)  # what the row's reduce-scatter leaves here
        yield from reduce_scatter(along, column, 0, length)
        yield from reduce_scatter(across, row, *mine)
        yield from all_gather(across, row, *mine)
        yield from all_gather(along, column, 0, length)

    def rounds(self, p: int) -> int:
        rows, columns = self.shape(p)
        return 2 * (rows - 1) + 2 * (columns - 1)

    def bytes_sent(self, p: int, position: int, nbytes: int) -> int:
        """Return a ring's bytes in the row for n bytes, and in the column for the chunk that the row left here."""
        rows, columns = self.shape(p)
        row, column = divmod(position, columns)
        lo, hi = chunk(0, nbytes // ELEMENT_NBYTES, columns, column + 1)
        return ring_bytes(columns, column, nbytes) + ring_bytes(rows, row, ELEMENT_NBYTES * (hi - lo))
