"""The command line in a real terminal: what is on the screen at the end, and what Ctrl-C does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from taut.testing.terminal import CTRL_C, Terminal

TESTS = Path(__file__).parents[1]
JOB = TESTS / "integration" / "job.py"
COMMAND = [sys.executable, "-m", "taut.cli.main"]


def taut(folder: Path, *words: object, columns: int = 80, **variables: str) -> Terminal:
    return Terminal([*COMMAND, *map(str, words)], columns=columns, cwd=folder, environment=variables)


def left_in_order(terminal: Terminal) -> None:
    """Assert that the terminal is as a shell expects it, and that nothing of a redrawn display is left on it."""
    assert not terminal.screen.cursor.hidden, "the cursor is still hidden"
    assert "waiting  (" not in terminal.text, terminal.text
    assert "Traceback" not in terminal.text, terminal.text


@pytest.mark.parametrize("columns", [80, 140])
def test_a_run_shows_its_table_and_its_verdict(tmp_path: Path, columns: int) -> None:
    with taut(tmp_path, "run", "-n", 2, JOB, "--epochs", 2, columns=columns) as terminal:
        assert terminal.exit_code() == 0, terminal.text
    left_in_order(terminal)
    assert terminal.text.count("finished after") == 1
    end = terminal.text.partition("finished after")[2]
    assert end.index("replicas: identical") < end.index("finish: worker") < end.index("model: ")


def test_ctrl_c_while_it_trains_drains_and_saves(tmp_path: Path) -> None:
    with taut(tmp_path, "run", "-n", 2, JOB, "--gate", tmp_path / "never") as terminal:
        terminal.wait_for("samples/s  loss")
        terminal.press(CTRL_C)
        assert terminal.exit_code() == 0, terminal.text
    left_in_order(terminal)
    assert "draining, Ctrl-C again to stop now" in terminal.text
    assert "replicas: identical" in terminal.text
