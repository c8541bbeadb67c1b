"""Output that cannot be written: results are missed with one line and exit code 1, remarks are not missed at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from taut.cli.output.console import StandardError, notes

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
ENTRY = [sys.executable, "-c", "import sys; sys.path.pop(0); from taut.cli.entry import main; main()"]


def test_results_that_cannot_be_written_are_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [*ENTRY, "strategies"], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device (`taut --debug ...` shows where)\n"


def test_remarks_that_cannot_be_written_end_nothing(tmp_path: Path) -> None:
    with FULL.open("w") as full:
        done = subprocess.run([*ENTRY, "runs"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=full, check=False)
    assert done.returncode == 0


def test_remarks_go_to_standard_error_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console = notes()
    console.print("one")
    assert capsys.readouterr().err == "one\n"
    assert not console.is_terminal
    with open(os.devnull, "w") as closed:
        pass
    monkeypatch.setattr(sys, "stderr", closed)
    console.print("two")
    monkeypatch.setattr(sys, "stderr", None)
    console.print("three")


def test_remarks_pass_by_the_proxy_of_a_table_that_is_redrawn(capfd: pytest.CaptureFixture[str]) -> None:
    console = Console(
        file=StandardError(), force_terminal=True
    )  # rich then puts a proxy of this console in place of sys.stderr
    with Live(console=console, refresh_per_second=1):
        assert hasattr(sys.stderr, "rich_proxied_file")
        console.print("one")
    assert capfd.readouterr().err.count("one") == 1


def test_force_color_gives_colours_and_nothing_that_is_redrawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = notes()
    assert not console.is_terminal
    console.print("one", style="red")
    assert capsys.readouterr().err == "\x1b[31mone\x1b[0m\n"
