"""Flags come from where a setting is stated: nothing of it is written a second time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

import taut.cli
from taut.cli.main import app
from taut.cli.options import PANELS, Given, with_flags
from taut.config import FIELDS, Settings

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
OTHERS = {
    "compare": {"workers", "link"},
    "simulate": {"workers", "seed", "link"},
    "dashboard": {"link"},
    "runs": {"strategy"},
    "topology": {"workers"},
}


def test_every_setting_with_a_help_text_is_a_flag_with_it() -> None:
    shown: dict[str, set[tuple[str, str]]] = {}
    for command, made in COMMANDS.items():
        for flag in made.params:
            if flag.name in FIELDS and flag.name not in OTHERS.get(command, ()):
                shown.setdefault(flag.name, set()).add((flag.help, flag.rich_help_panel))
    stated = {name: setting.metadata for name, setting in FIELDS.items() if setting.metadata["help"]}
    panels = {name: PANELS[given["option"].get("panel", given["table"])] for name, given in stated.items()}
    assert shown == {name: {(given["help"], panels[name])} for name, given in stated.items()}


def test_no_command_repeats_a_settings_help_text() -> None:
    sources = [path.read_text() for path in Path(taut.cli.__path__[0]).rglob("*.py")]
    for setting in FIELDS.values():
        text = setting.metadata["help"]
        assert not text or not any(text in source for source in sources), setting.name


def test_the_docs_list_every_setting_with_its_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\w+) \|.*\| `TAUT_\w+` \| `\[(\w+)\]` \|", page, re.MULTILINE)
    assert dict(listed) == {name: setting.metadata["table"] for name, setting in FIELDS.items()}


@dataclass(frozen=True)
class Shape:
    width: Annotated[int, typer.Option(help="Across.")] = 2
    names: Annotated[list[str] | None, typer.Option(help="Of sides.")] = None


def test_groups_of_flags_reach_the_command_as_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[tuple[str, Given, Shape, bool, Settings]] = []
    alone = typer.Typer()

    @alone.command()
    @with_flags("workers loud config seed preload")
    def command(word: str, *, given: Given, shape: Shape, loud: bool = False) -> None:
        seen.append((word, given, shape, loud, given.settings(seed=5)))

    words = ["w", "-n", "3", "--loud", "--names", "a", "--names", "b", "--preload", "json"]
    made = CliRunner().invoke(alone, words)
    assert made.exit_code == 0, made.output
    ((word, given, shape, loud, settings),) = seen
    assert (word, loud, shape) == ("w", True, Shape(2, ["a", "b"]))
    assert given == Given({"workers": 3, "seed": None, "preload": ["json"]}, None)
    assert (settings.workers, settings.seed, settings.preload) == (3, 5, ("json",))
    order = [one.name for one in typer.main.get_command(alone).params]
    assert order[:6] == ["word", "workers", "loud", "config", "seed", "preload"]
