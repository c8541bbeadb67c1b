"""The documentation holds: links lead somewhere, code compiles or runs, commands and flags are those that exist."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from taut.cli.main import app
from taut.config import Settings
from taut.plugins import TOPOLOGIES, TRANSPORTS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "bench" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)|(?:src|href)=\"(?P<attribute>[^\"]+)\"")


@dataclass(frozen=True)
class Block:
    """A fenced piece of a page. Its first word is the language; ``runnable`` after it says that it runs as it is, where
    the modules named after that word are installed."""

    page: Path
    line: int
    info: tuple[str, ...]
    body: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path, language: str) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        info = tuple(match["info"].split())
        if info and info[0] == language:
            yield Block(page, text.count("\n", 0, match.start()) + 2, info, match["body"])


PYTHON = [block for page in PAGES for block in blocks(page, "python")]
RUNNABLE = [block for block in PYTHON if "runnable" in block.info]


def anchors(page: Path) -> set[str]:
    """The names that headings get: lower case, dashes for spaces, no punctuation."""
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[str]:
    for match in _LINK.finditer(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        target = match["target"] or match["attribute"]
        if not re.match(r"[a-z]+:", target):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(there), f"{page.name} links to {target}: no such heading"


GLOSSARY = ROOT / "docs" / "glossary.md"
_TERM = re.compile(r"^\| \*\*(?P<term>[^*]+)\*\* \| (?P<meaning>.+) \| \[(?P<name>[^\]]+)\]\((?P<target>[^)]+)\) \|$")
OLD_WORDS = re.compile(  # words of before the glossary; the verb "to talk" and the column `talk` of tables stay
    r"\b(seats?|couriers?|shea(f|ves)|rolls?|bequests?|heirs?|lookouts?|arenas?|latecomers?|scribes?|errands?|entrances?"
    r"|lanes?|centres?|hollow|forsaken|(the|a|its|own) talks?)\b",
    re.IGNORECASE,
)


def test_the_glossary_has_each_term_once_with_a_file_that_holds_it() -> None:
    rows = [line for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if line.startswith("| **")]
    terms = [_TERM.match(row) for row in rows]
    assert None not in terms, [row for row, term in zip(rows, terms, strict=True) if term is None]
    names = [term["term"] for term in terms if term]
    assert len(names) >= 45 and len(set(names)) == len(names)
    for term in terms:
        assert term is not None
        path = GLOSSARY.parent / term["target"]
        assert path.is_file() and term["target"] == f"../src/taut/{term['name']}", term["target"]
        words = r"[ _-]?".join(word.removesuffix("eters") for word in term["term"].split())  # flat_params
        assert re.search(words, path.name + path.read_text(encoding="utf-8"), re.IGNORECASE), f"{path}: {term['term']}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_the_words_of_the_glossary(page: Path) -> None:
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        found = OLD_WORDS.search(re.sub(r"\(\S+\)", "", line))  # where a link leads is not prose
        assert not found, f"{page.name}:{number}: {found[0]!r} is an old word: see docs/glossary.md"


def tracked() -> set[str]:
    """Return the paths of all files of the repository, and of what they stand in, without the folders above it."""
    folders = ("src", "tests", "bench", "docs", "examples", ".ci")
    paths = [path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return {"/".join(path.parts[start:]) for path in paths for start in range(len(path.parts))}


def test_files_that_pages_name_exist() -> None:
    """`name.py` in a code span is a file of the repository; the path may leave out the folders above it."""
    known, examples = tracked(), {"train.py"}
    for page in PAGES:
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        named = set(re.findall(r"(?<!\S)\(?`([a-z_0-9/.-]+\.py)`", text))  # NAME.py is any
        assert named - examples <= known, f"{page.name} names files that are not there"


OTHERS = {
    "ChainedScheduler",
    "DistributedDataParallel",
    "EventSource",
    "GradScaler",
    "NUMBA_CACHE_DIR",
    "OneCycleLR",
}  # not taut's
NAME_OTHERS = ("porting.md", "frameworks.md", "CHANGELOG.md", "CONTRIBUTING.md")  # other tools, older versions
SETTINGS = {one.name for one in dataclasses.fields(Settings)} - {"sources"}


def test_names_in_code_spans_exist() -> None:
    """`name`, `name(...)` and `Name.attribute` are words of src: a page follows when something is renamed."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    classes, words = set(re.findall(r"^ *class (\w+)", source, re.MULTILINE)), set(re.findall(r"\w+", source))
    words |= OTHERS | {f"TAUT_{name.upper()}" for name in SETTINGS}
    for page in PAGES:
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        for name, attribute in re.findall(r"`([A-Z][a-z]\w+)\.(\w+)(?:\([^`]*\))?`", text):
            assert name in classes and attribute in words, f"{page.name}: {name}.{attribute}"
        if page.name not in NAME_OTHERS:
            spans = re.findall(r"`([A-Za-z_]\w+)(?:\([^`]*\))?`", text)
            used = {name for name in spans if "_" in name or re.match("[A-Z][a-z]", name)}  # not any word
            assert used <= words, f"{page.name} names {used - words}"


def test_packages_name_files_that_they_hold() -> None:
    """`name.py` and `name/` in the docstring of a package are in that package (or below it)."""
    for path in sorted((ROOT / "src").rglob("__init__.py")):
        told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        for name in re.findall(r"(?<![\w/])[\w/]+(?:\.py\b|/(?=[ ,]))", told):
            assert (path.parent / name).exists() or (ROOT / "docs" / name).exists(), f"{path} names {name}"


def test_links_are_found() -> None:
    assert sum(1 for page in PAGES for _ in links(page)) > 20


def test_every_page_is_reached_from_the_index() -> None:
    reached = {(ROOT / "docs" / target.partition("#")[0]).resolve() for target in links(ROOT / "docs" / "index.md")}
    assert {page for page in PAGES if page.parent.name == "docs" and page.name != "index.md"} <= reached


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.body, str(block), "exec")


@pytest.mark.parametrize("block", RUNNABLE, ids=str)
def test_python_runs(block: Block, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in block.info[2:]:
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    exec(compile(block.body, str(block), "exec"), {"__name__": "__main__"})


def test_something_runs() -> None:
    assert {"worker.md", "strategies.md", "porting.md"} <= {block.page.name for block in RUNNABLE}
    assert {"README.md", "porting.md", "frameworks.md"} == {diff.page.name for diff in DIFFS}


DIFFS = [block for page in PAGES for block in blocks(page, "diff")]


def side(diff: Block, dropped: str) -> str:
    """Return one side of a diff: the program before it (without ``+`` lines) or after it (without ``-`` lines)."""
    return "\n".join(line[1:] for line in diff.body.splitlines() if not line.startswith(dropped))


@pytest.mark.parametrize("diff", DIFFS, ids=str)
def test_a_diff_is_a_program_before_and_after(diff: Block, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    compile(side(diff, "+"), f"{diff} before", "exec")
    after = compile(side(diff, "-"), f"{diff} after", "exec")
    if "runnable" in diff.info:
        exec(after, {"__name__": "__main__"})


SHOWN = [diff for diff in DIFFS if diff.page.name == "frameworks.md"]


@pytest.mark.parametrize("diff", SHOWN, ids=str)
def test_a_diff_that_names_an_example_leads_to_it(diff: Block) -> None:
    _, _, code = (ROOT / "examples" / f"{diff.info[1]}.py").read_text(encoding="utf-8").split('"""', 2)
    assert side(diff, "-").strip() == code.strip()


def figures(name: str) -> dict[str, float]:
    rows = json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    return {row["name"]: row["value"] for row in rows}


def measured() -> Iterator[str]:
    """Yield the README's figures as they must read, made from bench/results."""
    spectrum, cluster, deaths = figures("spectrum"), figures("cluster"), figures("going_on")
    quality, tasks = figures("cluster-quality"), figures("quality-equal_samples")
    kept = {
        name: spectrum[f"{name}, straggler: samples_per_s"] / spectrum[f"{name}: samples_per_s"]
        for name in ("async", "sync")
    }
    yield f"`async` {kept['async']:.0%}, `sync` {kept['sync']:.0%}"
    yield f"{quality['mnist x4 tether: accuracy']:.1f}% against {quality['mnist x4 synchronous: accuracy']:.1f}%"
    yield f"with {quality['mnist x4 tether: bytes of a dense ring all-reduce / bytes sent']:.0f} times fewer bytes"
    losses = [percent for name, percent in tasks.items() if ", 4 workers: loss above" in name]
    yield f"[{sum(percent <= 1.0 for percent in losses)} of {len(losses)}]"
    yield f"[{cluster['4 hosts at 100 Mbit/s / 4 plain, no network']:.0%}]"
    pause_s = {name: deaths[f"{name}, run, killed: longest pause"] for name in ("async", "sync")}
    yield f"`async` {pause_s['async']:.1f} s, `sync` {pause_s['sync']:.1f} s"
    yield f"`sync` {deaths['sync, joined, killed: longest pause']:.1f} s between machines"
    against_gloo = figures("collectives")["1gbit: ring's speed / gloo's"]
    yield f"[{against_gloo:.0%}]"


def test_the_readme_says_what_was_measured() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [figure for figure in measured() if figure not in text] == []


def documented_commands() -> set[str]:
    table = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("\n\nEverything after SCRIPT")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `taut")]
    return {word for line in rows for word in re.findall(r"`taut (\w+)", line)}


def test_help_names_every_documented_command() -> None:
    told = CliRunner().invoke(app, ["--help"])
    assert told.exit_code == 0
    named = set(re.findall(r"^\W*(\w+)  ", told.output, re.MULTILINE))
    commands = documented_commands()
    assert len(commands) >= 6
    assert commands <= named


def test_every_command_is_documented() -> None:
    assert set(typer.main.get_command(app).commands) == documented_commands()  # type: ignore[attr-defined]


def test_every_topology_is_documented() -> None:
    table = (ROOT / "docs" / "topologies.md").read_text(encoding="utf-8").partition("| written |")[2].partition("\n\n")[0]
    assert set(TOPOLOGIES) <= set(re.findall(r"`([\w-]+)", table))


def test_every_transport_is_documented() -> None:
    table = (ROOT / "docs" / "communication.md").read_text(encoding="utf-8").partition("| `--transport` |")[2]
    assert set(TRANSPORTS) <= set(re.findall(r"^\| `(\w+)`", table.partition("\n\n")[0], re.MULTILINE))


def test_every_setting_is_documented() -> None:
    table = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").partition("## Settings")[2].partition("```")[0]
    named = set(re.findall(r"^\| (\w+) \|", table, re.MULTILINE))
    assert named >= SETTINGS


FOLDERS = [path.parent for path in sorted((ROOT / "src" / "taut").glob("*/**/__init__.py"))]


def test_the_map_names_every_folder() -> None:
    """CONTRIBUTING.md, "Where is what": every package, and every family in it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where is what")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| [")]
    for folder in FOLDERS:
        parts = folder.relative_to(ROOT / "src" / "taut").parts[:2]
        assert any(f"[{parts[0]}/]" in row and all(f"`{part}/`" in row for part in parts[1:]) for row in rows), folder


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "cli.md"], ids=lambda page: page.name)
def test_flags_exist(page: Path) -> None:
    """Every --flag in the text that stands in a `taut ...` or `--flag` code span, or in a shell block."""
    text = page.read_text(encoding="utf-8")
    spans = re.findall(r"`((?:taut|--)[^`\n]*)`", text)
    for language in ("sh", "console"):
        for block in blocks(page, language):
            spans += [line for line in block.body.splitlines() if re.search(r"\btaut (run|worker|supervisor|demo)", line)]
    commands = typer.main.get_command(app)
    own = [commands, *commands.commands.values()]  # type: ignore[attr-defined]
    own += [inner for each in own[1:] for inner in getattr(each, "commands", {}).values()]
    known = {name for each in own for p in each.params for name in p.opts}
    used = {flag for span in spans for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span)}
    assert used
    assert used <= known
