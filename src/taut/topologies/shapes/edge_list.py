"""Any graph, edge by edge: as it is written, or out of a file (an edge list, or networkx's node-link JSON).

Nothing here opens a file: the caller gives a function that does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from taut.errors import Misuse
from taut.topologies.graph import Edge, Graph
from taut.topologies.shape import Shape, spec

_LINE = re.compile(r"(\d{1,9})\s*(->|>|-|,|\s)\s*(\d{1,9})(?:[\s,].*)?")
_EDGE = re.compile(r"\s*(\d{1,9})\s*(-|->|>)\s*(\d{1,9})\s*")


@dataclass(frozen=True)
class Edges(Shape):
    """The user's own graph: ``edges:0-1,1-2,2-0``, or with directions ``edges:0>1,1>2,2>0``.

    The ranks that the edges name are positions. A member whose rank is a position has it; others take the free positions,
    lowest first. Where positions stay free, the graph is mended around them; where members are left over, each is put in
    the middle of the busiest edge (repair.py). So the graph is connected for any members, and depends on nothing else.

    >>> square = Edges(((0, 1), (1, 2), (2, 3), (3, 0)))
    >>> square.wire([0, 1, 3]).neighbours(1), square.wire([0, 1, 3, 4]).neighbours(4)
    ([0, 3], [1, 3])
    """

    name = "edges"
    undirected = "write the edges as a-b"
    edges: tuple[Edge, ...]
    directed: bool = False

    def __post_init__(self) -> None:
        for a, b in self.edges:
            if a == b:
                raise Misuse(f"edge {a}-{b}", "two different workers", "leave it out")
            if min(a, b) < 0:
                raise Misuse(f"edge {a}-{b}", "ranks from 0")
        kept = {(a, b) if self.directed or a < b else (b, a) for a, b in self.edges}
        object.__setattr__(self, "edges", tuple(sorted(kept)))

    @classmethod
    def from_short(cls, text: str) -> Self:
        """Read what stands after ``edges:``.

        >>> Edges.from_short("0-1, 1-2") == Edges(((0, 1), (1, 2))), Edges.from_short("0>1,1>0").directed
        (True, True)
        """
        found: list[Edge] = []
        kinds = set()
        for part in text.split(","):
            match = _EDGE.fullmatch(part)
            if not match:
                remedy = "as in edges:0-1,1-2"
                raise Misuse(f"edge {part.strip()!r}", "two ranks, such as 0-1, or 0>1 for one direction", remedy)
            found.append((int(match[1]), int(match[3])))
            kinds.add(match[2] != "-")
        if len(kinds) > 1:
            raise Misuse("edges with and without a direction", "one kind", "write a-b as a>b,b>a")
        return cls(tuple(found), directed=kinds == {True})

    def settings_text(self) -> str:
        return ",".join(f"{a}{'>' if self.directed else '-'}{b}" for a, b in self.edges)

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        ranks = sorted(set(members))
        positions = sorted({rank for edge in self.edges for rank in edge} | {0})
        others = [rank for rank in ranks if rank not in set(positions)]
        free = sorted(set(positions) - set(ranks))
        graph = Graph(tuple(positions), frozenset(self.edges), self.directed).without(*free[len(others) :])
        rank_at = {position: position for position in graph.members} | dict(zip(free, others, strict=False))
        edges = frozenset((rank_at[a], rank_at[b]) for a, b in graph.edges)
        graph = Graph(tuple(rank_at.values()), edges, self.directed)
        for rank in others[len(free) :]:
            graph = graph.with_member(rank)
        return graph

    def check(self, workers: int) -> None:
        super().check(workers)
        for a, b in self.edges:
            if max(a, b) >= workers:
                expected = f"ranks from 0 to {workers - 1}" if workers > 1 else "no edges"
                remedy = f"start {max(max(edge) for edge in self.edges) + 1} workers, or leave the edge out"
                raise Misuse(f"edge {a}-{b} with {workers} workers", expected, remedy)
        Graph(tuple(range(workers)), frozenset(self.edges), self.directed).check_connected()


def resolve(given: str, read: Callable[[str], str]) -> str:
    """Return ``file:PATH`` as ``edges:...``, which says the same without the file; other specs as they are.

    Arguments:
        read: gives the text of a file.

    >>> resolve("file:square.txt", read=lambda path: "0 1\\n1 2\\n2 3\\n3 0\\n")
    'edges:0-1,0-3,1-2,2-3'
    """
    kind, colon, path = given.partition(":")
    if kind.strip() != "file" or not colon:
        return given
    if not path.strip():
        raise Misuse(f"topology {given!r}", "file:PATH", "as in file:graph.txt")
    return spec(from_text(read(path.strip()), path.strip()))


def from_text(text: str, name: str = "graph") -> Edges:
    """Read node-link JSON where the text begins with a brace, else a list of edges."""
    edges, directed = _from_json(text, name) if text.lstrip().startswith("{") else _from_lines(text, name)
    if not edges:
        raise Misuse(f"{name}: no edges", "at least one", "a line such as: 0 1")
    return Edges(tuple(edges), directed)


def _from_lines(text: str, name: str) -> tuple[list[Edge], bool]:
    """Read a line for each edge: two ranks, with a space, comma or dash between, or > for one direction.

    # begins a remark. The text after the second rank (networkx writes attributes there) is not used.
    """
    edges: list[Edge] = []
    kinds = set()
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        match = _LINE.fullmatch(content)
        if not match:
            raise Misuse(f"{name}, line {number}: {content[:60]!r}", "two ranks, such as: 0 1")
        edges.append((int(match[1]), int(match[3])))
        kinds.add(match[2] in ("->", ">"))
    if len(kinds) > 1:
        raise Misuse(f"{name}: edges with and without a direction", "one kind", "write a b as a>b and b>a")
    return edges, kinds == {True}


def _from_json(text: str, name: str) -> tuple[list[Edge], bool]:
    """Read what networkx.node_link_data gives: ``{"directed": false, "nodes": [{"id": 0}, ...], "edges": [{"source": 0,
    "target": 1}]}``; older versions say "links"."""
    try:
        record: Any = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise Misuse(f"{name}: {error}", "JSON as of networkx.node_link_data") from None
    links = record.get("edges", record.get("links"))
    if not isinstance(links, list) or not all(isinstance(each, dict) for each in links):
        raise Misuse(f"{name}: no list of edges", "JSON as of networkx.node_link_data")
    edges = [(_rank(each.get("source"), name), _rank(each.get("target"), name)) for each in links]
    return edges, record.get("directed") is True


def _rank(given: object, name: str) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        remedy = "networkx.convert_node_labels_to_integers makes them"
        raise Misuse(f"{name}: node {given!r}", "ranks: whole numbers from 0", remedy)
    return given
