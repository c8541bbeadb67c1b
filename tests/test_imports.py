"""Imports point inward, the middle stays pure, and nothing heavy is imported at the start."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from sources import PATHS, SRC, named, nodes_in, nodes_of

HEIGHT = {
    "__main__": 4,
    "ray": 4,
    "jax": 4,
    "lightning": 4,
    "hf": 4,
    "keras": 4,
    **dict.fromkeys(
        ("cli", "engines", "testing", "comparison", "adviser", "dashboard", "discovery", "analysis", "loggers"), 3
    ),
    **dict.fromkeys(("worker", "supervisor", "optim", "simulator", "tiers"), 2),
    **dict.fromkeys(("strategies", "codecs", "topologies", "collectives", "transport", "config", "parallel", "data"), 1),
    **dict.fromkeys(("core", "errors", "specs", "quantities", "early_sigint", "plugins"), 0),
}
# Neighbours of one height do not know each other, but for these.
SIDEWAYS = {
    ("cli", "engines"),
    ("cli", "comparison"),
    ("cli", "adviser"),
    ("cli", "dashboard"),
    ("cli", "discovery"),
    ("cli", "analysis"),
    ("cli", "loggers"),
    ("loggers", "analysis"),
    ("analysis", "comparison"),
    ("dashboard", "analysis"),
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
    ("parallel", "config"),
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
# Compiled kernels are kept on disk: this module finds numba a folder, and is the one exception.
ITS_CACHE = "codecs/kernels/cpu/compilation.py"
READ_THE_ENVIRONMENT = ("config", "engines")


def imports(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The full name of every module that is imported, inside functions too."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            assert node.module is not None
            if node.module == "taut":  # `from taut import codecs` names a package, `from taut import run` a function
                yield from (f"taut.{alias.name}" if alias.name in HEIGHT else "taut" for alias in node.names)
            else:
                yield node.module


def outward(part: str, nodes: Sequence[ast.AST]) -> list[str]:
    """What a module of ``part`` imports although it may not."""
    wrong = []
    for name in imports(nodes):
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


MODULES = [(path.relative_to(SRC).with_suffix("").parts[0], path) for path in PATHS if path != SRC / "__init__.py"]


def test_every_part_has_a_place() -> None:
    assert {part for part, _ in MODULES} == set(HEIGHT)


def test_imports_point_inward() -> None:
    found = {named(path): outward(part, nodes_of(path)) for part, path in MODULES}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


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
    assert outward(part, nodes_in(source))


def test_the_middle_does_no_io() -> None:
    found = {
        named(path): {name.partition(".")[0] for name in imports(nodes_of(path))} & IMPURE
        for part, path in MODULES
        if part in PURE
    }
    assert {name: wrong for name, wrong in found.items() if wrong} == {ITS_CACHE: {"os"}}


def test_only_config_and_engines_read_the_environment() -> None:
    readers = {
        part
        for part, path in MODULES
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    }
    assert readers == set(READ_THE_ENVIRONMENT)


POSIX_ONLY = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}


def test_what_only_posix_has_is_imported_where_it_is_used() -> None:
    """Elsewhere importing taut must work; a pseudo-terminal, which taut.testing offers, is of POSIX alone."""
    at_once = {
        named(path)
        for _, path in MODULES
        for node in nodes_of(path)
        if isinstance(node, ast.Import | ast.ImportFrom) and not node.col_offset and {*imports([node])} & POSIX_ONLY
    }
    assert at_once == {"testing/terminal.py"}


LIGHT = ("taut", "taut.cli.entry", "taut.cli.main", "taut.supervisor.service", "taut.engines.local")


@pytest.mark.parametrize("module", LIGHT)
def test_start_is_light(module: str) -> None:
    """Torch takes seconds to import, numba most of one: neither may come before it is needed."""
    code = f"import sys, {module}; print(*sorted({{'torch', 'numba', 'matplotlib', 'sklearn'}} & set(sys.modules)))"
    environment = {"PYTHONPATH": str(SRC.parent), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_worker_of_one_process_loads_nothing_of_islands() -> None:
    """torch.distributed.tensor takes as long to import as half of torch."""
    code = "import sys, taut.worker.join; print(*(set(sys.modules) & {'torch.distributed.tensor'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
