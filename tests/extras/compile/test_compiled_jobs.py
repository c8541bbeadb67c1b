"""Jobs without source, with Cython at hand: `make test-compile`. Modules are machine code, and do the same."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from taut.cli.main import app
from taut.cli.packing.job_file import read_job
from taut.cli.packing.machine_code import SUFFIX
from taut.cli.packing.unpack import opened_job, unpacked
from taut.config import Settings

SECRET = "the_way_that_nobody_shall_read"
FILES = {
    "train.py": "from pieces.one import total\nimport alone\nprint('total', total(4), alone.Twice(3).value)\n",
    "pieces/__init__.py": "",
    "pieces/one.py": f"def total(n: int):\n    {SECRET} = [i * i for i in range(n)]\n    return sum({SECRET})\n",
    "alone.py": "class Twice:\n    def __init__(self, x):\n        self.value = 2 * x  # a comment\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pack() -> Result:
    return CliRunner().invoke(app, ["pack", "--no-source", "train.py"])


def test_modules_are_machine_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = pack()
    assert made.exit_code == 0 and "machine code and byte code" in made.stderr and "by Cython 3" in made.stderr
    found = read_job(Path("train.taut"))
    assert set(found.contents) == {"train.pyc", "pieces/__init__.pyc", f"pieces/one{SUFFIX}", f"alone{SUFFIX}"}
    assert not any(b"a comment" in data or b"for i in range" in data for data in found.contents.values())
    assert opened_job(Path("train.taut"), None) is not None
    script = unpacked(found, Settings(runs_dir=str(folder / "runs")))
    monkeypatch.syspath_prepend(str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
    assert "total 14 6" in capsys.readouterr().out
    assert str(sys.modules["pieces.one"].__file__).endswith(SUFFIX)


def test_what_cannot_be_compiled_is_byte_code(folder: Path) -> None:
    (folder / "alone.py").write_text("def f():\n    return undefined_name + cython_does_not_know\n")  # an error to Cython
    made = pack()
    assert made.exit_code == 0 and "kind:      byte code of Python" in made.stderr and "failed: " in made.stderr
    assert set(read_job(Path("train.taut")).contents) == {
        "train.pyc",
        "pieces/__init__.pyc",
        "pieces/one.pyc",
        "alone.pyc",
    }
