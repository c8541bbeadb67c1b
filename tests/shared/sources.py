"""The source files of taut, each parsed once in a process for all tests that look at them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import taut

SRC = Path(taut.__path__[0])
PATHS = tuple(sorted(SRC.rglob("*.py")))
# What those tests look at. The other nodes are dropped: a whole tree is large.
_IMPORTS = (ast.Import, ast.ImportFrom)
_LITERALS = (ast.Tuple, ast.List, ast.Set, ast.Dict)
_KINDS = (*_IMPORTS, *_LITERALS, ast.Assign, ast.Attribute, ast.Call, ast.ExceptHandler)


def nodes_in(source: str) -> list[ast.AST]:
    """Return the nodes of the kinds above, outer ones before inner ones."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, _KINDS)]


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return `nodes_in` a file."""
    return nodes_in(path.read_text(encoding="utf-8"))


def named(path: Path) -> str:
    return path.relative_to(SRC).as_posix()
