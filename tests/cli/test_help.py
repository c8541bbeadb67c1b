"""What commands say of themselves: examples that can be typed, completion, the version."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from taut import __version__
from taut.cli.examples import EXAMPLES
from taut.cli.main import app, main
from taut.supervisor.storage.store_writer import StoreWriter

ROOT: Any = typer.main.get_command(app)


def commands(group: Any = ROOT, before: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    yield " ".join(before), group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*before, name))


def parsed(command: Any, arguments: list[str], name: str, parent: Any = None) -> str:
    """Parse without running anything; return the names of the commands that were reached."""
    context = command.make_context(name, list(arguments), parent=parent)
    if not hasattr(command, "resolve_command"):
        return ""
    rest = [*context._protected_args, *context.args] if hasattr(context, "_protected_args") else context.args
    found, inner, left = command.resolve_command(context, rest)
    return f"{found} {parsed(inner, left, found, context)}".strip()


def test_every_command_has_examples() -> None:
    assert {name for name, _ in commands()} == set(EXAMPLES)


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=lambda each: each if isinstance(each, str) else "")
def test_the_examples_are_in_the_help_and_can_be_typed(
    name: str, command: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    assert not ended.value.code
    shown = capsys.readouterr().out
    for example in EXAMPLES[name]:
        assert example in shown
        first, *words = shlex.split(example)
        assert first == "taut"
        reached = parsed(ROOT, words, "taut")
        assert reached.startswith(name), f"{example!r} is an example of {reached!r}"


@pytest.fixture
def complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], list[str]]:
    """Return what bash offers for the last word."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAUT_RUNS_DIR", str(tmp_path))
    monkeypatch.setenv("_TAUT_COMPLETE", "complete_bash")

    def offered(words: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        with pytest.raises(SystemExit):
            main([])
        return capsys.readouterr().out.split()

    return offered


def test_the_shell_completes_commands_names_and_runs(tmp_path: Path, complete: Callable[[str], list[str]]) -> None:
    store = StoreWriter(tmp_path / "quiet-otter", "quiet-otter")
    store.begin(1.0, "taut run x.py", {}, {})
    store.close()
    assert complete("taut si") == ["simulate"]
    assert complete("taut run --strategy ss") == ["ssp"]
    assert complete("taut run --codec topk") == ["topk"]
    assert complete("taut topology tor") == ["torus"]
    assert complete("taut compare --strategies async,ss") == ["async,ssp"]
    assert complete("taut show qu") == ["quiet-otter"]
    assert complete("taut supervisor --recover qu") == ["quiet-otter"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_completion_for_the_shell(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_TAUT_COMPLETE", f"source_{shell}")
    with pytest.raises(SystemExit):
        main([])
    assert f"_TAUT_COMPLETE=complete_{shell}" in capsys.readouterr().out
    assert {"--install-completion", "--show-completion"} <= {name for each in ROOT.params for name in each.opts}


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_python_m_taut_is_the_command(flag: str) -> None:
    done = subprocess.run([sys.executable, "-m", "taut", flag], capture_output=True, text=True, check=True)
    assert done.stdout == f"taut {__version__}\n"
