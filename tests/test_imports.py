"""Imports point inward, the middle stays pure, and nothing heavy is imported at the start."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
HEIGHT = {
    "__main__": 4,
    "ray": 4,
    **dict.fromkeys(("cli", "engines", "testing", "comparison", "adviser", "dashboard", "discovery"), 3),
    **dict.fromkeys(("worker", "supervisor", "optim", "simulator"), 2),
    **dict.fromkeys(("strategies", "codecs", "topologies", "collectives", "transport", "config", "parallel"), 1),
    **dict.fromkeys(("core", "errors", "specs", "quantities", "early_sigint", "plugins"), 0),
}
# Neighbours of one height do not know each other, but for these.
SIDEWAYS = {
    ("cli", "engines"),
    ("cli", "comparison"),
    ("cli", "adviser"),
    ("cli", "dashboard"),
    ("cli", "discovery"),
    ("discovery", "engines"),
    ("adviser", "comparison"),
    ("comparison", "engines"),
    ("adviser", "engines"),
    ("simulator", "worker"),
    ("simulator", "supervisor"),
    ("testing", "engines"),
    ("worker", "optim"),
    ("config", "codecs"),
    ("config", "strategies"),
    ("config", "topologies"),
    ("strategies", "collectives"),
    ("specs", "errors"),
    ("plugins", "errors"),
    ("plugins", "specs"),
    ("quantities", "errors"),
    ("quantities", "specs"),
    ("strategies", "topologies"),
}
# The middle takes records and gives records: no socket, clock, file, environment, log or thread of its own.
PURE = ("strategies", "topologies", "codecs", "collectives")
IMPURE = {"asyncio", "logging", "os", "pathlib", "socket", "sqlite3", "subprocess", "threading", "time", "zmq"}
ITS_CACHE = "compilation.py"  # compiled kernels are kept on disk: it finds numba a folder, and is the one exception
READ_THE_ENVIRONMENT = ("config", "engines")


def imports(source: str) -> Iterator[str]:
    """The full name of every module that ``source`` imports, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            assert node.module is not None
            if node.module == "taut":  # `from taut import codecs` names a package, `from taut import run` a function
                yield from (f"taut.{alias.name}" if alias.name in HEIGHT else "taut" for alias in node.names)
            else:
                yield node.module


def outward(part: str, source: str) -> list[str]:
    """What a module of ``part`` imports although it may not."""
    wrong = []
    for name in imports(source):
        root, _, rest = name.partition(".")
        if root != "taut":
            continue
        other = rest.partition(".")[0]
        if not other:
            allowed = HEIGHT[part] == 3  # `taut` itself gathers the public names: it is above everything but these
        else:
            assert other in HEIGHT, f"{other} has no place in the order of imports: give it one"
            inward = HEIGHT[other] < HEIGHT[part]
            allowed = other == part or inward or (part, other) in SIDEWAYS
        if not allowed:
            wrong.append(name)
    return wrong


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted((SOURCE / "taut").rglob("*.py")):
        part = path.relative_to(SOURCE / "taut").with_suffix("").parts[0]
        if part != "__init__":
            found.append((part, path))
    return found


MODULES = modules()


def named(path: Path) -> str:
    return str(path.relative_to(SOURCE)) if isinstance(path, Path) else ""


def test_every_part_has_a_place() -> None:
    assert {part for part, _ in MODULES} == set(HEIGHT)


@pytest.mark.parametrize(("part", "path"), MODULES, ids=named)
def test_imports_point_inward(part: str, path: Path) -> None:
    assert outward(part, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("core", "from taut.errors import Misuse"),
        ("strategies", "from taut.worker.comm.comm_thread import Node"),
        ("strategies", "def f():\n    import taut.codecs.algorithms.dense"),
        ("worker", "from taut.supervisor.run.cluster import Cluster"),
        ("supervisor", "from taut import join"),
    ],
)
def test_the_check_sees_what_points_outward(part: str, source: str) -> None:
    assert outward(part, source)


@pytest.mark.parametrize(("part", "path"), [each for each in MODULES if each[0] in PURE], ids=named)
def test_the_middle_does_no_io(part: str, path: Path) -> None:
    impure = IMPURE - ({"os"} if path.name == ITS_CACHE else set())
    assert {name.partition(".")[0] for name in imports(path.read_text(encoding="utf-8"))} & impure == set()


def test_only_config_and_engines_read_the_environment() -> None:
    readers = {
        part
        for part, path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    }
    assert readers == set(READ_THE_ENVIRONMENT)


LIGHT = ("taut", "taut.cli.entry", "taut.cli.main", "taut.supervisor.service", "taut.engines.local")


@pytest.mark.parametrize("module", LIGHT)
def test_start_is_light(module: str) -> None:
    """Torch takes seconds to import, numba most of one: neither may come before it is needed."""
    code = f"import sys, {module}; print(*sorted({{'torch', 'numba', 'matplotlib', 'sklearn'}} & set(sys.modules)))"
    environment = {"PYTHONPATH": str(SOURCE), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
