"""A named shape wires any set of workers, from their ranks alone.

Every worker works out the wiring for itself, from the written form of the shape, the sorted list of members and the
number of the round. No history is needed: workers that know the same members have the same graph.

**Positions.** Most shapes are defined over positions 0 to n - 1. The n members take them so: a rank below n has the
position of its own number; the other ranks, in order, take the positions that are left, lowest first. So

- at the start, position and rank are the same;
- when a worker leaves, the one with the highest rank takes its position (unless it was the leaver), and all others keep
  theirs: the shape stays whole, and only the edges of a few positions change;
- a newcomer, whose rank is above the others', takes the last position, or gives back the one that was borrowed.

Ring and line go by the sorted ranks instead, where a leaver's two neighbours simply become each other's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from typing import ClassVar, Self

from taut.errors import Misuse
from taut.topologies.graph import Edge, Graph


def ranks_by_position(members: Sequence[int]) -> list[int]:
    """Return the rank at each position.

    >>> [ranks_by_position(members) for members in ([0, 1, 2, 3], [0, 2, 3], [0, 2, 3, 4], [7, 9])]
    [[0, 1, 2, 3], [0, 3, 2], [0, 4, 2, 3], [7, 9]]
    """
    present = set(members)
    size = len(present)
    others = iter(sorted(rank for rank in present if not 0 <= rank < size))
    return [position if position in present else next(others) for position in range(size)]


class Shape(ABC):
    """A frozen dataclass of hyper-parameters that wires any members, at least one, into a graph.

    ``wire`` never refuses: workers may leave at any time, and the others must go on. Every graph it gives is connected,
    or, where the shape varies from round to round, the union of its rounds is. ``check`` refuses a user's mistake before
    the start.
    """

    name: ClassVar[str]
    varies: ClassVar[bool] = False  # from round to round
    advised: ClassVar[str] = ""  # the form in which `taut advise` tries it with strategies for any undirected topology
    undirected: ClassVar[str] = (
        "try ring, torus or exponential:directed=no"  # the remedy, where its edges have directions
    )

    @abstractmethod
    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        """Return the graph over these ranks in this round."""

    def check(self, workers: int) -> None:
        """Raise ``Misuse``, with a remedy, where this many workers cannot start in this shape."""
        if workers < 1:
            raise Misuse(f"{self.name} with {workers} workers", "at least 1")

    def union(self, members: Sequence[int]) -> Graph:
        """Return all edges that any round uses: the channels to open. Of a shape that does not vary, the graph itself."""
        return self.wire(members)

    def period(self, workers: int) -> int:
        """Return after how many rounds the graphs repeat; 0: never."""
        return 1

    @classmethod
    def from_short(cls, text: str) -> Self | None:
        """Return the shape whose settings have a short form, such as 3x4; None where ``text`` is key=value,key=value."""
        return None

    def settings_text(self) -> str:
        """Return the settings that are not as by default, as key=value,key=value."""
        plain, parts = type(self)(), []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value != getattr(plain, field.name):
                parts.append(f"{field.name}={_written(value)}")
        return ",".join(parts)


def spec(shape: Shape) -> str:
    """Return the written form, which ``parse`` reads back to an equal shape. Settings with their default are left out.

    >>> from taut.topologies.registry import parse
    >>> spec(parse("torus:3x4")), spec(parse("ring")), spec(parse("matcha:base=torus:3x4"))
    ('torus:rows=3,columns=4', 'ring', 'matcha:base=torus:rows=3,columns=4')
    """
    text = shape.settings_text()
    return f"{shape.name}:{text}" if text else shape.name


def _written(value: object) -> str:
    return spec(value) if isinstance(value, Shape) else ("no", "yes")[value] if isinstance(value, bool) else str(value)


def from_positions(members: Sequence[int], edges: Sequence[Edge], directed: bool = False) -> Graph:
    """Return the graph over ``members`` from edges between positions. Those from a position to itself are dropped."""
    ranks = ranks_by_position(members)
    pairs = frozenset((ranks[a], ranks[b]) for a, b in edges if a != b)
    return Graph(tuple(ranks), pairs, directed)
