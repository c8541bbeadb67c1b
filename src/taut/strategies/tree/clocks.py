"""Clocks along a tree: how far the slowest worker is, for a relay whose delay is bounded (``ssp`` on a sparse topology).

    a worker goes on  iff  its clock <= slack + the slowest clock          clock: iterations that are behind it

Each worker tells each neighbour in the tree the slowest clock on its own side of their edge: the least of its own and of
what its other neighbours told it. Clocks only grow, so what has been told is never more than the truth, however late it
is, and no worker gets more than ``slack`` ahead of another that trains.

When the members change, so does the tree, and nothing is known of its edges at first: the slowest clock counts for them
that was known before. A newcomer is *pending*: it does not count, and others go no further than that, until it has heard
from all sides. It begins level with the slowest. A message says whether it is of the *whole* side: a leaf's always is,
any other's once its sender has heard the whole of all other sides. So the pending know when they have heard all, also
where all are, at the start of the run; then they begin at 0. A worker that has ended, or goes, counts no more; one that
waits for data keeps level with the slowest of the others, who may have the data that it waits for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from taut.errors import MalformedMessage

CLOCK = "clock"  # the kind of message
NONE = -1.0  # no worker on this side trains


@dataclass(frozen=True)
class Side:
    """What is behind an edge, as far as it was told."""

    slowest: float = math.inf
    whole: bool = False
    pending: bool = False


@dataclass
class TreeClocks:
    """What one worker knows. ``sides``: by neighbour; ``floor``: what counts for a neighbour that has told nothing.

    >>> clocks = TreeClocks(slack=2)
    >>> clocks.root([1])
    >>> clocks.due()  # nothing slower, all of this side, and somebody here is pending
    [(1, [-1.0, 1.0, 1.0])]
    >>> [clocks.step() for _ in range(4)]  # nothing is known of worker 1: it may be at 0
    [True, True, False, False]
    >>> clocks.hear(1, [3.0, 1.0, 0.0]); clocks.may_go
    True
    """

    slack: int
    clock: int = 0
    pending: bool = True
    counts: bool = True  # it trains, and others wait for it
    waiting: bool = False
    floor: float = 0.0
    sides: dict[int, Side] = field(default_factory=dict)
    neighbours: tuple[int, ...] = ()
    _told: dict[int, list[float]] = field(default_factory=dict)

    def root(self, neighbours: Iterable[int]) -> None:
        """Change to another tree."""
        self.floor = self.slowest
        self.neighbours = tuple(neighbours)
        self.sides.clear()
        self._told.clear()
        self._begin()

    @property
    def slowest(self) -> float:
        """Return the slowest clock of the others, or less; infinity if none counts."""
        if self.pending and not self.neighbours:
            return self.floor
        return min([self._behind(other) for other in self.neighbours], default=math.inf)

    @property
    def may_go(self) -> bool:
        return self.clock <= self.slack + self.slowest or not self.counts

    def _behind(self, other: int) -> float:
        side = self.sides.get(other)
        if side is None:
            return self.floor
        return min(side.slowest, self.floor) if side.pending else side.slowest

    def step(self) -> bool:
        """Count an iteration; return whether the worker may go on."""
        self.clock += 1
        self.waiting = not self.may_go
        return not self.waiting

    def rest(self) -> None:
        """Keep level with the slowest of the others: this worker waits for data."""
        if self.clock < self.slowest < math.inf:
            self.clock = int(self.slowest)

    def end(self) -> None:
        """Count no more."""
        self.counts = self.pending = False

    def hear(self, sender: int, numbers: Sequence[float]) -> None:
        """Note what a neighbour told. Raise ``MalformedMessage`` if it is no clock."""
        if sender not in self.neighbours:
            raise MalformedMessage(f"a clock from worker {sender}, which is no neighbour in the tree")
        if len(numbers) != 3 or not NONE <= numbers[0] < 2**53 or not {*numbers[1:]} <= {0.0, 1.0}:
            raise MalformedMessage(f"a clock with the numbers {list(numbers)}")
        slowest = math.inf if numbers[0] < 0 else numbers[0]
        self.sides[sender] = Side(slowest, bool(numbers[1]), bool(numbers[2]))
        self._begin()

    def _begin(self) -> None:
        """Begin to count, once all sides are known."""
        if self.pending and self._whole(self.neighbours):
            self.pending = False
            level = min([side.slowest for side in self.sides.values()], default=math.inf)
            self.clock = max(self.clock, int(level) if level < math.inf else 0)

    def _whole(self, neighbours: Iterable[int]) -> bool:
        return all(other in self.sides and self.sides[other].whole for other in neighbours)

    def due(self) -> list[tuple[int, list[float]]]:
        """Return what to tell, and to whom: only what is news."""
        news = []
        for other in self.neighbours:
            rest = [one for one in self.neighbours if one != other]
            # Of a neighbour that has told nothing the pending know nothing: their own floor is that of the start.
            unknown = Side(math.inf if self.pending else self.floor)
            sides = [self.sides.get(one, unknown) for one in rest]
            own = self.clock if self.counts and not self.pending else math.inf
            slowest = min([own, *(side.slowest for side in sides)])
            pending = self.pending or any(side.pending for side in sides)
            told = [slowest if slowest < math.inf else NONE, float(self._whole(rest)), float(pending)]
            if self._told.get(other) != told:
                self._told[other] = told
                news.append((other, told))
        return news
