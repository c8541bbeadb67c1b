"""Ctrl-C while a command is being imported: exit code 130 and one line at most, never Python's traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from taut.engines.script import command

# Python runs this before anything else: Ctrl-C comes at the very moment that the named module is looked for.
SITE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
class At:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["CTRL_C_AT"]:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, At())
"""
ENTRY = [sys.executable, "-c", "from taut.cli.entry import main; main()"]


def interrupted(folder: Path, words: list[str], at: str) -> tuple[int, str, str]:
    (folder / "sitecustomize.py").write_text(SITE)
    places = [str(folder), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "CTRL_C_AT": at}
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("at", ["typer", "taut.cli.commands.show", "rich.table", "taut.supervisor.storage.store_reader"])
def test_a_command_ends_quietly(tmp_path: Path, at: str) -> None:
    code, out, err = interrupted(tmp_path, [*ENTRY, "runs"], at)
    assert (code, out) == (130, "")
    assert err in ("", "interrupted\n")


@pytest.mark.parametrize("at", ["taut.engines.script", "runpy", "ctypes", "wave"])
def test_a_worker_ends_quietly(tmp_path: Path, at: str) -> None:
    (tmp_path / "train.py").write_text("import wave\n")
    code, out, err = interrupted(tmp_path, command("train.py", [], alone=True), at)
    assert (code, out, err) == (130, "", "interrupted\n")


def test_the_installed_command_begins_there() -> None:
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    assert 'taut = "taut.cli.entry:main"' in project.read_text(encoding="utf-8")
