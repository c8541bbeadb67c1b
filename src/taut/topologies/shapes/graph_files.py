"""Graphs out of files: edge lists, and networkx's node-link JSON. The text is read by whoever may read files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from taut.errors import Misuse
from taut.topologies.graph import Edge
from taut.topologies.shapes.edge_list import Edges

_LINE = re.compile(r"(\d{1,9})\s*(->|>|-|,|\s)\s*(\d{1,9})(?:[\s,].*)?")


def resolve(spec: str, read: Callable[[str], str]) -> str:
    """``file:PATH`` as ``edges:...``, which says the same without the file; other specs as they are.

    Arguments:
        read: gives the text of a file. The command line passes one that opens it; this module opens nothing.

    >>> resolve("file:square.txt", read=lambda path: "0 1\\n1 2\\n2 3\\n3 0\\n")
    'edges:0-1,0-3,1-2,2-3'
    """
    kind, colon, path = spec.partition(":")
    if kind.strip() != "file" or not colon:
        return spec
    if not path.strip():
        raise Misuse(f"topology {spec!r}", "file:PATH", "as in file:graph.txt")
    return written(from_text(read(path.strip()), path.strip()))


def written(shape: Edges) -> str:
    """The written form: ``edges:0-1,1-2``."""
    return "edges:" + ",".join(f"{a}{'>' if shape.directed else '-'}{b}" for a, b in shape.edges)


def from_text(text: str, name: str = "graph") -> Edges:
    """Node-link JSON where it begins with a brace, else a list of edges."""
    edges, directed = _from_json(text, name) if text.lstrip().startswith("{") else _from_lines(text, name)
    if not edges:
        raise Misuse(f"{name}: no edges", "at least one", "a line such as: 0 1")
    return Edges(tuple(edges), directed)


def _from_lines(text: str, name: str) -> tuple[list[Edge], bool]:
    """A line for each edge: two ranks, with a space, comma or dash between, or > for one direction; # begins a remark.

    What follows the second rank (networkx writes attributes there) is not used.
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
    """networkx.node_link_data: ``{"directed": false, "nodes": [{"id": 0}, ...], "edges": [{"source": 0, "target": 1}]}``;
    older versions say "links"."""
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
        raise Misuse(
            f"{name}: node {given!r}",
            "ranks: whole numbers from 0",
            "networkx.convert_node_labels_to_integers makes them",
        )
    return given
