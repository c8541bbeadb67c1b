"""CONTRIBUTING.md is true: each row of "Adding something" is followed in a copy of the tree, file by file, and works.

A recipe may touch the files that its row names and no other. Then the new part shows in the commands, obeys the laws, and
the tests that the row names pass on the copy.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taut.codecs import parse
from taut.plugins import CODECS
from taut.testing.checks.codec_check import check_codec
from taut.testing.checks.compressor_check import check_compressor
from taut.testing.checks.method_check import check_method

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\| (?P<what>an? [a-z]+) \| (?P<files>[^|]+) \| (?P<tests>[^|]+) \|$", re.MULTILINE)
TABLE = {row["what"]: row for row in ROW.finditer((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))}


WIRE = "import sys; sys.path.insert(0, 'tests/core'); import test_wire_version as t"


class Tree:
    """A copy of the repository, and which of its files a recipe has touched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.touched: set[str] = set()
        for name in ("src", "docs", "tests", "bench", "examples"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "mkdocs.yml", "pyproject.toml"):
            shutil.copy(ROOT / name, folder / name)

    def write(self, path: str, text: str) -> None:
        """Add a file."""
        assert not (self.folder / path).exists(), path
        self.touched.add(path)
        (self.folder / path).write_text(text, encoding="utf-8")

    def insert(self, path: str, after: str, line: str) -> None:
        """Add a line to a file, behind the first one that ``after`` matches."""
        self.touched.add(path)
        lines = (self.folder / path).read_text(encoding="utf-8").splitlines()
        at = next(number for number, one in enumerate(lines) if re.search(after, one))
        (self.folder / path).write_text("\n".join([*lines[: at + 1], line, *lines[at + 1 :]]) + "\n", encoding="utf-8")

    def replace(self, path: str, old: str, new: str) -> None:
        """Change a text that a file has once."""
        self.touched.add(path)
        text = (self.folder / path).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{path}: {old}"
        (self.folder / path).write_text(text.replace(old, new), encoding="utf-8")

    def run(self, *arguments: str) -> str:
        """Run ``python ...`` on the copy, and return its output."""
        environment = os.environ | {"PYTHONPATH": str(self.folder / "src"), "COLUMNS": "200", "NUMBA_DISABLE_JIT": "1"}
        done = subprocess.run(
            [sys.executable, *arguments],
            check=False,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout


def codec(tree: Tree) -> None:
    tree.write(
        "src/taut/codecs/algorithms/inturn.py",
        '''"""In turn: of every few elements one, another at each update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taut.codecs.algorithms.topk import sparse_piece
from taut.codecs.compressor import Compressor, Memory, Piece, Vector
from taut.codecs.info import CodecInfo
from taut.codecs.wire.payload import Kind


@dataclass(frozen=True)
class InTurn(Compressor):
    """Send every element once in so many updates.

    Arguments:
        parts: the number of these updates.
    """

    parts: int = 8
    name: ClassVar[str] = "inturn"
    kind: ClassVar[Kind] = Kind.SPARSE

    @property
    def facts(self) -> CodecInfo:
        bound = "every element is sent once in so many updates"
        return CodecInfo("elements in turn", bits=64.0 / self.parts, error=1.0, bound=bound, paper="an example")

    def compress(self, v: Vector, lo: int, memory: Memory) -> Piece | None:
        indices = np.arange((memory.turns - lo) % self.parts, len(v), self.parts)
        if not isinstance(v, np.ndarray):
            indices = v.new_tensor(indices, dtype=int)
        return sparse_piece(indices, v[indices]) if len(indices) else None
''',
    )
    tree.insert("src/taut/plugins.py", '"topk": "codecs', '        "inturn": "codecs.algorithms.inturn:InTurn",')
    row = "| `inturn` | elements in turn | 8 | 1 | no | no | waits | parts | an example |"
    tree.insert("docs/codecs.md", r"^\| `topk` ", row)


def strategy(tree: Tree) -> None:
    tree.write(
        "src/taut/strategies/periodic/often.py",
        '''"""Often: average all weights, after every second step unless told otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from taut.strategies.periodic.averaging import Averaging


@dataclass(frozen=True)
class Often(Averaging):
    """Average as ``averaging`` does.

    Arguments:
        every: the steps between two averages.
    """

    every: int = 2
    name = "often"
''',
    )
    tree.insert("src/taut/plugins.py", '"averaging": "strat', '        "often": "strategies.periodic.often:Often",')
    row = "| `often` | all, every second step | weights | local | equal bits |"
    tree.insert("docs/strategies.md", r"^\| `averaging` ", row)


def topology(tree: Tree) -> None:
    tree.write(
        "src/taut/topologies/shapes/wheel.py",
        '''"""The wheel: a ring around a hub, the lowest rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from taut.topologies.graph import Graph
from taut.topologies.repair import ring_of
from taut.topologies.shape import Shape


@dataclass(frozen=True)
class Wheel(Shape):
    """Connect every worker to the hub, and the others in a ring."""

    name: ClassVar[str] = "wheel"

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        hub, *rim = sorted(set(members))
        return Graph(tuple(members), frozenset([(hub, rank) for rank in rim] + list(ring_of(rim))))
''',
    )
    tree.insert("src/taut/plugins.py", '"star": "topologies', '        "wheel": "topologies.shapes.wheel:Wheel",')
    row = "| `wheel` | a ring around a hub, the lowest rank | 3; the hub 15 | 2 | | 60 |"
    tree.insert("docs/topologies.md", r"^\| `star` ", row)


def transport(tree: Tree) -> None:
    tree.write(
        "src/taut/transport/pipe.py",
        '''"""``--transport pipe``: ZeroMQ under another name."""

from __future__ import annotations

from typing import ClassVar

from taut.transport.keys import Token, WorkerKeys
from taut.transport.transport import Transport
from taut.transport.zmq.factory import Zmq
from taut.transport.zmq.transport import ZmqTransport


class PipeTransport(ZmqTransport):
    """A worker's end."""


class Pipe(Zmq):
    """Open both ends."""

    name: ClassVar[str] = "pipe"

    def connect(self, keys: WorkerKeys, bind: str, advertise: str | None, supervisor: tuple[str, Token]) -> Transport:
        return PipeTransport(keys, bind=bind, advertise=advertise, supervisor=supervisor)
''',
    )
    tree.replace("src/taut/plugins.py", '{"zmq": "transport', '{"pipe": "transport.pipe:Pipe", "zmq": "transport')
    row = "| `pipe` | between machines, as `zmq` | `transport/pipe.py` |"
    tree.insert("docs/communication.md", r"^\| `zmq` ", row)
    laws = "tests/transport/test_transports.py"
    network = """def pipe() -> Network:
    from taut.transport.pipe import PipeTransport

    def make(rank: int) -> tuple[Transport, Member]:
        keys = WorkerKeys.generate()
        transport = PipeTransport(keys)
        return transport, Member(rank, transport.address, keys.public_key)

    return make


@pytest.mark.parametrize("network", ["""
    tree.replace(laws, '@pytest.mark.parametrize("network", [', network + "pipe, ")


def engine(tree: Tree) -> None:
    tree.write(
        "src/taut/engines/here.py",
        '''"""``--engine here``: processes on this machine."""

from __future__ import annotations

from typing import ClassVar

from taut.engines.local import LocalEngine


class Here(LocalEngine):
    """Start workers as ``local`` does."""

    name: ClassVar[str] = "here"
''',
    )
    tree.replace("src/taut/plugins.py", '{"local": "engines', '{"here": "engines.here:Here", "local": "engines')


def message(tree: Tree) -> None:
    record = '''class Aside(Message, frozen=True):
    """Tell the supervisor a number that it may ignore."""

    number: Count = 0


'''
    tree.replace("src/taut/core/messages/worker.py", "WorkerMessage = (\n", record + "WorkerMessage = (\n    Aside |\n")
    tree.replace("src/taut/core/messages/__init__.py", "    UPLOAD_NBYTES,\n", "    UPLOAD_NBYTES,\n    Aside,\n")
    tree.insert("src/taut/core/messages/__init__.py", "^__all__", '    "Aside",')
    base = (tree.folder / "src/taut/core/messages/base.py").read_text(encoding="utf-8")
    version = int(re.findall(r"^PROTOCOL_VERSION = (\d+)", base, re.MULTILINE)[0])
    tree.replace("src/taut/core/messages/base.py", f"_VERSION = {version}\n", f"_VERSION = {version + 1}\n")
    samples = "src/taut/testing/fuzz/message_samples.py"
    tree.insert(samples, r"^from taut.core.messages import \($", "    Aside,")
    tree.insert(samples, r"^EXAMPLES.* = \($", "    Aside(7),")
    handlers = "src/taut/supervisor/run/handlers.py"
    tree.insert(handlers, r"^from taut.core.messages import \($", "    Aside,")
    tree.insert(handlers, r"^        match message:$", "            case Aside():\n                pass")
    digest = tree.run("-c", f"{WIRE}; print(t.digest(t.KINDS))").strip()
    line = f'    {version + 1}: "{digest}",'
    tree.insert("tests/core/test_wire_version.py", "^SCHEMAS = ", line)


def command(tree: Tree) -> None:
    tree.write(
        "src/taut/cli/commands/greet.py",
        '''"""``taut greet``: say hello."""

from __future__ import annotations

import typer


def greet() -> None:
    """Say hello."""
    typer.echo("hello")
''',
    )
    tree.insert("src/taut/cli/main.py", r"^    drain,$", "    greet,")
    tree.insert("src/taut/cli/main.py", r'^_add\("drain"', '_add("greet", greet.greet)')
    tree.insert("src/taut/cli/examples.py", r'^    "drain": ', '    "greet": ("taut greet",),')
    tree.insert("docs/cli.md", r"^\| `taut drain RUN`", "| `taut greet` | say hello |")


def page(tree: Tree) -> None:
    tree.write("docs/greeting.md", "# Greetings\n\n`taut greet` says hello.\n")
    tree.insert("docs/index.md", r"^\| \[cli.md\]", "| [greeting.md](greeting.md) | be greeted |")
    tree.insert("mkdocs.yml", "The command line: cli.md", "      - Greetings: greeting.md")


RECIPES: dict[str, Callable[[Tree], None]] = {
    "a codec": codec,
    "a strategy": strategy,
    "a topology": topology,
    "a transport": transport,
    "an engine": engine,
    "a message": message,
    "a command": command,
    "a page": page,
}
PLACEHOLDERS = {
    "src/taut/codecs/algorithms/NAME.py": "src/taut/codecs/algorithms/inturn.py",
    "src/taut/strategies/FAMILY/NAME.py": "src/taut/strategies/periodic/often.py",
    "src/taut/topologies/shapes/NAME.py": "src/taut/topologies/shapes/wheel.py",
    "src/taut/transport/NAME.py": "src/taut/transport/pipe.py",
    "src/taut/engines/NAME.py": "src/taut/engines/here.py",
    "src/taut/core/messages/FAMILY.py": "src/taut/core/messages/worker.py",
    "src/taut/cli/commands/NAME.py": "src/taut/cli/commands/greet.py",
    "docs/NAME.md": "docs/greeting.md",
}


def paths(cell: str) -> set[str]:
    """Return the files that a cell of the table names."""
    return {PLACEHOLDERS.get(path, path) for path in re.findall(r"`((?:src|docs|tests)/[\w/.]+|mkdocs\.yml)`", cell)}


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tree, dict[str, set[str]]]]:
    """Yield a tree in which every recipe was followed, and the files that each of them touched."""
    tree = Tree(tmp_path_factory.mktemp("tree"))
    touched = {}
    for what, recipe in RECIPES.items():
        tree.touched = set()
        recipe(tree)
        touched[what] = tree.touched
    yield tree, touched
    shutil.rmtree(tree.folder)


def test_every_row_has_a_recipe() -> None:
    assert set(TABLE) == set(RECIPES)


@pytest.mark.parametrize("what", RECIPES)
def test_a_row_names_the_files_to_touch(what: str, changed: tuple[Tree, dict[str, set[str]]]) -> None:
    assert paths(TABLE[what]["files"]) == changed[1][what]


SHOWN = {
    "codecs --no-measure": r"\binturn\b.*elements in turn",
    "strategies": r"\boften\b.*every=2",
    "topology wheel --workers 5": "diameter",
    "--help": r"\bgreet\b +Say hello",
    "greet": "hello",
    "simulate --timing-only -n 4 --strategy often --codec dense --steps 4 resnet50": "samples",
}
HELD = (  # of the tests that the rows name: those that look at every part, where they are quick
    "tests/cli/test_codecs_page.py",
    "tests/cli/test_help.py::test_every_command_has_examples",
    "tests/core/test_wire_version.py",
    "tests/strategies/test_strategies_page.py",
    "tests/test_docs.py::test_every_command_is_documented",
    "tests/test_docs.py::test_every_page_is_reached_from_the_index",
    "tests/test_docs.py::test_every_topology_is_documented",
    "tests/test_docs.py::test_every_transport_is_documented",
    "tests/transport/test_transports.py::test_transport_keeps_the_contract[check_order_and_no_loss-pipe]",
    "tests/transport/test_framing.py::test_every_message_has_an_example",
)


COMMANDS = f"""
import re

import pytest
from typer.testing import CliRunner

from taut.cli.main import app
from taut.config import resolve


@pytest.mark.parametrize(("arguments", "shown"), {SHOWN!r}.items())
def test_the_new_part_shows(arguments, shown):
    told = CliRunner().invoke(app, arguments.split()).output
    assert re.search(shown, told), told


def test_the_transport_and_the_engine_are_settings():
    found = resolve({{"transport": "pipe", "engine": "here"}}, environ={{}}, cwd="/nowhere")
    assert (found.transport, found.engine) == ("pipe", "here")
"""


def test_the_parts_show_in_the_commands_and_the_tests_that_the_rows_name_pass(
    changed: tuple[Tree, dict[str, set[str]]],
) -> None:
    """One process for all: importing taut takes most of the time."""
    tree = changed[0]
    named = {path for row in TABLE.values() for path in paths(row["tests"])}
    assert {test.partition("::")[0] for test in HELD} <= named
    assert all((ROOT / path).is_file() for path in named)
    (tree.folder / "tests" / "test_commands.py").write_text(COMMANDS, encoding="utf-8")
    tree.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests/test_commands.py", *HELD)


def made(tree: Tree, path: str, name: str) -> type:
    """Return a class of a new file of the tree, without installing it."""
    spec = importlib.util.spec_from_file_location(f"added_{name}", tree.folder / path)
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kind: type = getattr(module, name)
    return kind


def test_the_new_parts_obey_the_laws(changed: tuple[Tree, dict[str, set[str]]], monkeypatch: pytest.MonkeyPatch) -> None:
    tree = changed[0]
    monkeypatch.setitem(CODECS, "inturn", made(tree, "src/taut/codecs/algorithms/inturn.py", "InTurn"))
    check_codec(parse("inturn:parts=4"))
    check_compressor(CODECS["inturn"](4))
    check_method(made(tree, "src/taut/strategies/periodic/often.py", "Often")(), seed=0, workers=3)
    wheel = made(tree, "src/taut/topologies/shapes/wheel.py", "Wheel")()
    for workers in range(1, 7):
        wheel.check(workers)
        wheel.wire(range(workers)).check_connected()


def test_a_message_without_a_new_version_is_refused(changed: tuple[Tree, dict[str, set[str]]]) -> None:
    tree, version = changed[0], "src/taut/core/messages/base.py"
    kept = (tree.folder / version).read_text(encoding="utf-8")
    shutil.copy(ROOT / version, tree.folder / version)
    with pytest.raises(AssertionError, match="raise PROTOCOL_VERSION"):
        tree.run("-c", f"{WIRE}; t.test_the_messages_are_those_of_their_version()")
    (tree.folder / version).write_text(kept, encoding="utf-8")
