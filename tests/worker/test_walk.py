"""docs/walk.md is true: its functions exist, a real run passes through them, and through no others on the way."""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from memory_run import train

import taut

SRC = Path(taut.__path__[0])
HERE = f"{SRC}/"
PAGE = Path(__file__).parents[2] / "docs" / "walk.md"
REFERENCE = re.compile(r"`([\w/]+\.py): ([\w.]+)`")
# Where a message is looked at on its way: the functions on the stack there are the way.
STATIONS = {
    "async": [
        "SteeredCodec.emit",
        "Broadcast._send_new",
        "MemoryTransport.send",
        "decode",
        "take_updates",
        "Codec.absorb",
    ],
    "sync": [
        "Gradients.fetch",
        "RoundMachine.begin",
        "CommThread.post",
        "Channels._pump",
        "MemoryTransport.send",
        "decode",
        "Channels._take",
        "Group._take",
        "RoundMachine.mean",
        "Gradients.put_back",
    ],
}
ASIDE = ("SupervisorClient.", "Dispatcher._on_time")  # what is said to the supervisor, or because time has passed
MOST = {"async": (15, 24), "sync": (17, 29)}  # files and functions on the way


def documented(strategy: str) -> set[tuple[str, str]]:
    """Return the files and functions that the page names in the section on ``strategy``."""
    section = re.search(rf"^## `{strategy}`.*?(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert section is not None
    return set(REFERENCE.findall(section[0]))


def functions(path: Path) -> set[str]:
    """Return the qualified names of the functions of a file."""
    found: set[str] = set()

    def look(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                found.add(prefix + child.name)
                look(child, f"{prefix}{child.name}.")

    look(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


@pytest.mark.parametrize("strategy", sorted(STATIONS))
def test_every_function_of_the_walk_exists(strategy: str) -> None:
    named = documented(strategy)
    assert len(named) > 15
    assert [(file, name) for file, name in sorted(named) if name not in functions(SRC / file)] == []


class Trace:
    """What is called in all threads that ``watch`` is called in: all functions, and the stacks at some."""

    def __init__(self, stations: list[str]) -> None:
        self.called: set[tuple[str, str]] = set()
        self.stacks: dict[str, Counter[tuple[tuple[str, str], ...]]] = {name: Counter() for name in stations}

    def watch(self) -> None:
        threading.setprofile(self._profile)  # for the thread that this one starts
        sys.setprofile(self._profile)

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        here = self._named(frame) if event == "call" else None
        if here is None:
            return
        self.called.add(here)
        if here[1] in self.stacks:
            stack = tuple(reversed([named for each in self._up(frame) if (named := self._named(each)) is not None]))
            roots = [at for at, (_, name) in enumerate(stack) if name in ("TorchWorker.step", "CommThread._run")]
            if roots and not any(name.startswith(ASIDE) for _, name in stack):
                self.stacks[here[1]][stack[roots[0] :]] += 1

    def _up(self, frame: FrameType | None) -> Any:
        while frame is not None:
            yield frame
            frame = frame.f_back

    def _named(self, frame: FrameType) -> tuple[str, str] | None:
        path = frame.f_code.co_filename
        return (path[len(HERE) :], frame.f_code.co_qualname) if path.startswith(HERE) else None


@pytest.mark.parametrize("strategy", sorted(STATIONS))
def test_a_real_step_goes_the_way_of_the_page(tmp_path: Path, strategy: str) -> None:
    trace = Trace(STATIONS[strategy])
    for attempt in range(10):  # on a busy machine a worker may be done before anything of the other comes
        models = train(tmp_path / str(attempt), strategy, begun=trace.watch)
        threading.setprofile(None)
        if all(trace.stacks.values()):
            break
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)
    page, way = documented(strategy), set()
    for station, stacks in trace.stacks.items():
        assert stacks, f"no message came by {station}"
        way |= {each for each in stacks.most_common(1)[0][0] if "<locals>" not in each[1]}
    assert sorted(way - page) == [], "docs/walk.md does not name these"
    assert sorted(page - trace.called) == [], "docs/walk.md names these, and nothing comes by"
    files = {file for file, _ in way}
    assert len(files) <= MOST[strategy][0] and len(way) <= MOST[strategy][1], (len(files), len(way))
