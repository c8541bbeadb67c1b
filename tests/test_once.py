"""Facts that several parts need are stated once: a test fails where one of them is written a second time."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import taut
from taut.config import PATIENCE_S, Settings
from taut.core.messages import TIME_PARTS, Statistics
from taut.engines.zygote import PRELOADED
from taut.supervisor.metrics import time_split
from taut.supervisor.run.plan import RunPlan

SOURCE = {path: path.read_text(encoding="utf-8") for path in sorted(Path(taut.__path__[0]).rglob("*.py"))}


def stated(pattern: str) -> list[str]:
    """Return the files of src in which ``pattern`` occurs."""
    return [str(path.relative_to(taut.__path__[0])) for path, text in SOURCE.items() if re.search(pattern, text)]


def test_the_parts_of_time_are_those_of_the_statistics() -> None:
    assert TIME_PARTS == ("compute", "encode", "send", "wait", "merge", "data")
    spent = Statistics(wall_s=21.5, **{f"{part}_s": float(number) for number, part in enumerate(TIME_PARTS, 1)})
    assert list(time_split(spent).values()) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.5]
    assert stated(r'"send",\s*"wait",\s*"merge"') == []
    assert stated(r"\bsend_s\b.*\bwait_s\b") == []


def test_patience_is_the_settings_default_everywhere() -> None:
    assert Settings().patience_s == RunPlan("run", 0, 1, "{}").patience_s == PATIENCE_S
    assert stated(r"\b120(\.0)?\s+# .*supervisor|_S = 120\b") == ["config/settings.py"]


@pytest.mark.parametrize(
    ("what", "pattern", "files"),
    [
        ("a size in bytes for people", r'"B", "kB", "MB"', ["quantities.py"]),
        ("the choice of a model at the end", r'"average", "best", "any", "ensemble"', ["core/finishes.py"]),
        ("its names in a text", r"average, best", []),
        ("what every worker agrees on", r'"finish", "workers", "seed"', []),
        (
            "values as JSON has them",
            r"def plain\(",
            ["supervisor/storage/store_writer.py"],
        ),
        ("a callback that does nothing", r"def _?(do_)?nothing\(", ["core/callbacks.py"]),
        ("how many messages a link takes", r"\b(HWM|CAPACITY|ROOM|QUEUE) = (64|256)\b", []),
    ],
)
def test_a_fact_is_stated_in_one_file(what: str, pattern: str, files: list[str]) -> None:
    assert stated(pattern) == files, what


@pytest.mark.parametrize("name", PRELOADED)
def test_what_the_zygote_imports_ahead_is_there(name: str) -> None:
    assert importlib.util.find_spec(name) is not None
