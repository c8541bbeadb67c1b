"""The known shapes by name, and their written form: ``torus:rows=3,columns=4``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taut.errors import Misuse
from taut.plugins import TOPOLOGIES, Registry
from taut.specs import parse_spec
from taut.topologies.shape import Shape, spec

__all__ = ["REGISTRY", "check", "parse", "spec"]
REGISTRY: Registry[type[Shape]] = TOPOLOGIES


def parse(given: str | Mapping[str, Any] | Shape) -> Shape:
    """Read a shape: ``name``, ``name:key=value,key=value`` or a table with ``name``.

    A torus may be written ``torus:3x4``; a graph edge by edge is ``edges:0-1,1-2``;
    ``matcha:budget=0.5,base=torus:3x4`` names its base last. ``file:PATH`` is turned into ``edges:`` before
    (edge_list.py), as nothing is read here.

    >>> parse("torus:3x4") == parse({"name": "torus", "rows": 3, "columns": 4}) == parse("torus:rows=3,columns=2^2")
    True
    """
    if isinstance(given, Shape):
        return given
    if isinstance(given, Mapping) and given.get("name") == "edges":
        given = f"edges:{given.get('edges', '')}"
    if isinstance(given, str):
        name, _, rest = (word.strip() for word in given.partition(":"))
        if name == "file":
            raise Misuse(f"topology {given!r}", "edges: here", "files are read by the command line and taut.toml")
        short = REGISTRY.find(name, "as in --topology torus:3x4 or file:PATH").from_short(rest)
        if short is not None:
            return short
    name, values = parse_spec(given, TOPOLOGIES, "torus:rows=3,columns=4", nested=lambda base, _: parse(base))
    return REGISTRY[name](**values)


def check(shape: Shape | str, workers: int) -> Shape:
    """Return the shape, if so many workers can start in it; otherwise raise ``Misuse`` with a remedy.

    >>> check("hypercube", 8).wire(range(8)).diameter()
    3
    """
    shape = parse(shape)
    shape.check(workers)
    return shape
