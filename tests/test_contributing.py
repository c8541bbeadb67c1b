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
        for name in ("src", "docs", "tests", "bench", "examples"):  # with the byte code: files keep their times
            shutil.copytree(ROOT / name, folder / name)
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
        at = next((number for number, one in enumerate(lines) if re.search(after, one)), None)
        assert at is not None, f"{path} has no line like {after}"
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


def example(name: str) -> str:
    """Return a part of the example package, which works from outside taut as it does inside."""
    return (ROOT / "tests" / "plugin_package" / "taut_example" / name).read_text(encoding="utf-8")


def codec(tree: Tree) -> None:
    text = example("codec.py")
    for old, new in {  # inside taut: no import of the package that imports this file, and a measured cost
        "from taut.codecs import CodecInfo, Compressor, Kind\n": "",
        "from taut.codecs.algorithms.topk import sparse_piece\n": """from taut.codecs.algorithms.topk import sparse_piece
from taut.codecs.compressor import Compressor
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.wire.payload import Kind
""",
        "error=1.0,": "error=1.0, cost=CodecCost(1.8e-9, 4e-9, 8.0, 6e-5),",
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    tree.write("src/taut/codecs/algorithms/inturn.py", text)
    tree.insert("src/taut/plugins.py", '"topk": "codecs', '        "inturn": "codecs.algorithms.inturn:InTurn",')
    package = "src/taut/codecs/__init__.py"
    tree.insert(package, "^from taut.codecs.algorithms.int8", "from taut.codecs.algorithms.inturn import InTurn")
    tree.insert(package, "^__all__", '    "InTurn",')
    row = "| `inturn` | elements in turn | 8 | 1 | no | no | waits | parts | an example |"
    tree.insert("docs/codecs.md", r"^\| `topk` ", row)


def strategy(tree: Tree) -> None:
    tree.write("src/taut/strategies/periodic/often.py", example("strategy.py"))
    tree.insert("src/taut/plugins.py", '"averaging": "strat', '        "often": "strategies.periodic.often:Often",')
    row = "| `often` | all, every second step | weights | local | equal bits |"
    tree.insert("docs/strategies.md", r"^\| `averaging` ", row)


def topology(tree: Tree) -> None:
    tree.write("src/taut/topologies/shapes/ladder.py", example("topology.py"))
    tree.insert("src/taut/plugins.py", '"star": "topologies', '        "ladder": "topologies.shapes.ladder:Ladder",')
    row = "| `ladder` | two lines side by side, with rungs between them | 3 | 8 | | 44 |"
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
    tree.write("src/taut/engines/plain.py", example("engine.py"))
    tree.replace("src/taut/plugins.py", '"local": "engines', '"plain": "engines.plain:Plain",\n        "local": "engines')


def launcher(tree: Tree) -> None:
    page = (ROOT / "docs" / "launchers.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    tree.write("src/taut/engines/launchers/lsf.py", source)
    tree.replace(
        "src/taut/plugins.py",
        '{\n        "torchrun"',
        '{\n        "lsf": "engines.launchers.lsf:Lsf",\n        "torchrun"',
    )


def message(tree: Tree) -> None:
    record = '''class Aside(Message, frozen=True):
    """Tell the supervisor a number that it may ignore."""

    number: Count = 0


'''
    tree.replace("src/taut/core/messages/worker.py", "WorkerMessage = (\n", record + "WorkerMessage = (\n    Aside |\n")
    base = (tree.folder / "src/taut/core/messages/base.py").read_text(encoding="utf-8")
    version = int(re.findall(r"^PROTOCOL_VERSION = (\d+)", base, re.MULTILINE)[0])
    tree.replace("src/taut/core/messages/base.py", f"_VERSION = {version}\n", f"_VERSION = {version + 1}\n")
    tree.replace("tests/shared/fuzzers/message_samples.py", "\n)\n", "\n    m.Aside(7),\n)\n")
    handlers = "src/taut/supervisor/run/handlers.py"
    tree.insert(handlers, r"^        match message:$", "            case msg.Aside():\n                pass")
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
    tree.insert("src/taut/cli/main.py", r'^    "run resume demo', '    "greet "')
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
    "a launcher": launcher,
    "a message": message,
    "a command": command,
    "a page": page,
}
PLACEHOLDERS = {
    "src/taut/codecs/algorithms/NAME.py": "src/taut/codecs/algorithms/inturn.py",
    "src/taut/strategies/FAMILY/NAME.py": "src/taut/strategies/periodic/often.py",
    "src/taut/topologies/shapes/NAME.py": "src/taut/topologies/shapes/ladder.py",
    "src/taut/transport/NAME.py": "src/taut/transport/pipe.py",
    "src/taut/engines/NAME.py": "src/taut/engines/plain.py",
    "src/taut/engines/launchers/NAME.py": "src/taut/engines/launchers/lsf.py",
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
    "topology ladder --workers 6": "diameter",
    "--help": r"\bgreet\b +Say hello",
    "greet": "hello",
    "simulate --timing-only -n 4 --strategy often --codec dense --steps 4 resnet50": "samples",
}
HELD = (  # of the tests that the rows name: those that look at every part, where they are quick
    "tests/cli/test_codecs_page.py",
    "tests/cli/test_help.py::test_every_command_has_examples",
    "tests/core/test_messages.py::test_every_field_of_every_message_has_bounds",
    "tests/core/test_wire_version.py",
    "tests/simulator/models/test_costs.py::test_every_codec_has_a_cost",
    "tests/strategies/test_strategies_page.py",
    "tests/test_docs.py::test_every_command_is_documented",
    "tests/test_docs.py::test_every_page_is_reached_from_the_index",
    "tests/test_docs.py::test_every_topology_is_documented",
    "tests/test_docs.py::test_every_transport_is_documented",
    "tests/transport/test_transports.py::test_transport_keeps_the_contract[check_order_and_no_loss-pipe]",
    "tests/test_twin_lists.py",
    "tests/transport/test_framing.py::test_every_message_has_an_example",
    "tests/transport/test_framing.py::test_refusals_say_what_is_wrong",
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
    found = resolve({{"transport": "pipe", "engine": "plain"}}, environ={{}}, cwd="/nowhere")
    assert (found.transport, found.engine) == ("pipe", "plain")
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
    ladder = made(tree, "src/taut/topologies/shapes/ladder.py", "Ladder")()
    for workers in range(1, 8):
        ladder.check(workers)
        ladder.wire(range(workers)).check_connected()


def test_a_message_without_a_new_version_is_refused(changed: tuple[Tree, dict[str, set[str]]]) -> None:
    tree, version = changed[0], "src/taut/core/messages/base.py"
    kept = (tree.folder / version).read_text(encoding="utf-8")
    shutil.copy(ROOT / version, tree.folder / version)
    with pytest.raises(AssertionError, match="raise PROTOCOL_VERSION"):
        tree.run("-c", f"{WIRE}; t.test_the_messages_are_those_of_their_version()")
    (tree.folder / version).write_text(kept, encoding="utf-8")
