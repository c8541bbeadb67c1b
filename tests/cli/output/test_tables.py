"""Tables at 80 and 140 columns: no line is wider, and nothing that matters is cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from taut.cli.main import main
from taut.supervisor.storage.store_writer import StoreWriter
from taut.supervisor.view import Outcome

NAMES = ("20261115-031822-quiet-otter", "20261115-031901-polite-albatross", "mine")
SETTINGS = {"strategy": "async", "workers": 2, "seed": 0, "explicit": ["workers"], "threads": None}
Said = Callable[..., str]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Said:
    """Return what a command says at so many columns; in its folder of runs there are some."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAUT_RUNS_DIR", str(tmp_path))
    for at, name in enumerate(NAMES):
        store = StoreWriter(tmp_path / name, name)
        store.begin(100.0 * at, "taut run -n 2 train.py", SETTINGS, {"taut": "0.1.0", "torch": "2.13.0"})
        model = tmp_path / name / "model.safetensors"
        if at:
            store.finished(100.0 * at + 13, Outcome("finished", 0, True, True, "abc", model, wall_s=5.21, total_s=12.14))
        store.close()

    def call(*words: str, width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert not ended.value.code
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize(
    "words",
    [
        ("runs",),
        ("strategies",),
        ("codecs", "--no-measure"),
        ("topology", "torus", "-n", "12"),
        ("topology", "exponential", "-n", "16"),
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_the_terminal(words: tuple[str, ...], width: int, said: Said) -> None:
    lines = said(*words, width=width).splitlines()
    wide = [line for line in lines if len(line) > width and not line.startswith("for example:")]
    assert lines and wide == []


@pytest.mark.parametrize("width", [80, 140])
def test_runs_are_listed_with_their_whole_names_and_both_durations(width: int, said: Said) -> None:
    heading, *lines = said("runs", width=width).splitlines()
    assert [line.split()[0] for line in lines] == list(NAMES)
    assert "trained" in heading and all("5.2 s" in line and "finished" in line for line in lines[1:])
    assert "running" in lines[0]
    if width == 140:
        assert "in all" in heading and "started" in heading and "model.safetensors" in lines[1]


def test_the_same_durations_have_the_same_names_everywhere(said: Said) -> None:
    shown = said("show", "mine", width=80)
    assert shown.startswith("mine: finished, trained for 5.2 s, 12.1 s in all\n")
    listed = json.loads(said("runs", "--json", width=80))["runs"]
    one = json.loads(said("show", "mine", "--json", width=80))
    assert [(each["wall_s"], each["total_s"]) for each in (listed[-1], one)] == 2 * [(5.21, 12.14)]
    assert (listed[0]["wall_s"], listed[0]["total_s"]) == (None, None), "it has not ended"


def test_what_taut_keeps_for_itself_is_not_shown(said: Said) -> None:
    assert "explicit" not in said("show", "mine", width=80) and "threads" not in said("show", "mine", width=80)
    assert json.loads(said("show", "mine", "--json", width=80))["settings"] == {
        name: value for name, value in SETTINGS.items() if name != "explicit"
    }


@pytest.mark.parametrize("width", [80, 140])
def test_strategies_are_not_cut(width: int, said: Said) -> None:
    shown = said("strategies", width=width)
    words = " ".join(shown.split())
    assert "codistillation" in words and "outer_momentum=0.9" in words and "mixing=metropolis," in words
