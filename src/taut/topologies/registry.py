"""The known shapes by name, and their written form: ``torus:rows=3,columns=4``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from taut.errors import Misuse
from taut.specs import did_you_mean, named, pairs
from taut.topologies.shape import Shape
from taut.topologies.shapes import edge_list as edge_lists
from taut.topologies.shapes.basic import Complete, Line, Ring, Star
from taut.topologies.shapes.exponential import Exponential, OnePeer
from taut.topologies.shapes.graph_files import written
from taut.topologies.shapes.hypercube import Hypercube
from taut.topologies.shapes.matcha import Matcha
from taut.topologies.shapes.random_regular import RandomRegular
from taut.topologies.shapes.torus import Torus
from taut.topologies.shapes.tree import Tree

SHAPES = (Complete, Ring, Torus, Star, Line, Tree, Hypercube, Exponential, OnePeer, RandomRegular, Matcha)
REGISTRY: dict[str, type[Shape]] = {shape.name: shape for shape in SHAPES}
_SIZE = re.compile(r"\s*(\d{1,9})\s*[x×]\s*(\d{1,9})\s*")
_BASE = re.compile(r"(?:^|,)\s*base\s*=\s*")
_TRUTH = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def parse(given: str | Mapping[str, Any]) -> Shape:
    """The shape that was written down: ``name``, ``name:key=value,key=value`` or a table with ``name``.

    A torus may be written ``torus:3x4``; a graph edge by edge is ``edges:0-1,1-2``;
    ``matcha:budget=0.5,base=torus:3x4`` names its base last. ``file:PATH`` is turned into ``edges:`` before (files.py),
    as nothing is read here.

    >>> parse("torus:3x4") == parse({"name": "torus", "rows": 3, "columns": 4}) == Torus(3, 4)
    True
    """
    name, settings = _split(given)
    if name == "edges":
        return edge_lists.read(str(settings["edges"]))
    if name not in REGISTRY:
        known = [*REGISTRY, "edges", "file"]
        remedy = did_you_mean(name, known, "as in --topology torus:3x4")
        raise Misuse(f"topology {name!r}", f"one of {', '.join(known)}", remedy)
    fields = {field.name: field for field in dataclasses.fields(REGISTRY[name])}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in fields:
            raise Misuse(f"topology {name} with {key!r}", ", ".join(fields) or "no parameters", did_you_mean(key, fields))
        values[key] = _value(value, str(fields[key].type), f"{name}: {key}")
    return REGISTRY[name](**values)


def spec(shape: Shape) -> str:
    """The written form, which ``parse`` reads back to an equal shape. What is as by default is left out.

    >>> spec(Torus(3, 4)), spec(Ring()), spec(parse("matcha:base=torus:3x4"))
    ('torus:rows=3,columns=4', 'ring', 'matcha:base=torus:rows=3,columns=4')
    """
    if isinstance(shape, edge_lists.Edges):
        return written(shape)
    plain = type(shape)()
    parts = []
    for field in dataclasses.fields(shape):  # type: ignore[arg-type]
        value = getattr(shape, field.name)
        if value == getattr(plain, field.name):
            continue
        if isinstance(value, Shape):
            value = spec(value)
        elif isinstance(value, bool):
            value = "yes" if value else "no"
        parts.append(f"{field.name}={value}")
    return shape.name + (":" + ",".join(parts) if parts else "")


def check(shape: Shape | str, workers: int) -> Shape:
    """The shape, if so many workers can start in it; ``Misuse`` with what would fit otherwise.

    >>> check("hypercube", 8).wire(range(8)).diameter()
    3
    """
    shape = parse(shape) if isinstance(shape, str) else shape
    shape.check(workers)
    return shape


def _split(given: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    name, rest, table = named(given, "topology", "torus:3x4", '{ name = "torus", rows = 3, columns = 4 }')
    if isinstance(given, Mapping):
        return name, table
    if name == "edges":
        return name, {"edges": rest}
    if name == "file":
        raise Misuse(f"topology {given!r}", "edges: here", "files are read by the command line and taut.toml")
    size = _SIZE.fullmatch(rest)
    if size and name == "torus":
        return name, {"rows": size[1], "columns": size[2]}
    rest, base = _BASE.split(rest, maxsplit=1) if _BASE.search(rest) else (rest, None)  # a base has commas of its own
    settings: dict[str, Any] = dict(pairs(rest, f"topology {given!r}", "torus:rows=3,columns=4"))
    return name, settings if base is None else settings | {"base": base}


def _value(given: object, kind: str, what: str) -> Any:
    """What the field wants, from a text or a TOML value."""
    if kind == "Shape":
        return given if isinstance(given, Shape) else parse(given)  # type: ignore[arg-type]
    text = str(given).strip().lower()
    if kind == "bool":
        if text in _TRUTH:
            return _TRUTH[text]
        raise Misuse(f"{what}={given}", "yes or no")
    try:
        if isinstance(given, bool):
            raise ValueError
        return float(text) if kind == "float" else int(text)
    except ValueError:
        raise Misuse(f"{what}={given}", "a number" if kind == "float" else "a whole number") from None
