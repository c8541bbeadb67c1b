"""The examples that stand alone: two workers train each for a few steps in virtual time, and real data is read."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from data_sets import write_cifar, write_mnist, write_recordings

from taut.testing import FaultPlan, run_with_faults

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
SMALL = {
    "mnist_cnn": "--epochs 1 --samples 160",
    "cifar_resnet": "--epochs 1 --samples 64 --batch 16 --width 4 --blocks 1",
    "char_transformer": "--steps 6 --width 16 --layers 1 --length 16 --batch 8",
    "speech_ctc": "--epochs 1 --samples 60 --width 8",
}


def write_text(folder: Path) -> None:
    (folder / "input.txt").write_text("to be or not to be, that is the question. " * 20)


WRITTEN: dict[str, Callable[[Path], None]] = {
    "mnist_cnn": lambda folder: write_mnist(folder, 96, 20),
    "cifar_resnet": lambda folder: write_cifar(folder, 8),
    "char_transformer": write_text,
    "speech_ctc": lambda folder: write_recordings(folder, 10),
}


@pytest.mark.parametrize(("name", "args"), SMALL.items(), ids=SMALL)
def test_two_workers_train_it(name: str, args: str) -> None:
    found = run_with_faults(EXAMPLES / f"{name}.py", FaultPlan(1), workers=2, args=args.split(), limit_s=300.0)
    assert found.error == "" and not found.gone
    assert found.outcome is not None and found.outcome.samples_undone == 0
    assert all(row.statistics.steps > 0 for row in found.outcome.workers.values())
    assert found.validation is not None


@pytest.mark.parametrize(("name", "args"), SMALL.items(), ids=SMALL)
def test_it_reads_real_data(
    name: str, args: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    WRITTEN[name](tmp_path)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--data", str(tmp_path), *args.split()])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert "%" in capsys.readouterr().out or name == "char_transformer"


@pytest.mark.parametrize("name", SMALL)
def test_the_docstring_has_the_commands_and_the_diff(name: str) -> None:
    _, doc, code = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").split('"""', 2)
    assert f"taut run --workers 4 examples/{name}.py" in doc or "taut run --workers 4 --strategy" in doc
    added = [line.strip()[1:].strip() for line in doc.splitlines() if line.strip().startswith("+")]
    joins = [line for line in added if line.startswith("with taut.join(")]
    assert joins and joins[0] in code, "the diff is of this code"


def test_the_page_lists_every_example() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert [path.name for path in sorted(EXAMPLES.glob("*.py")) if f"(../examples/{path.name})" not in page] == []
