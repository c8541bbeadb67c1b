"""``taut run -m``, threads of the environment, and a mistake in the script: told once, exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked_zygotes import taut_command

from taut.cli.launch import check_script, script_of
from taut.errors import Misuse

TRAIN = """
import sys
import torch
import taut
from package.data import x

print("threads", torch.get_num_threads(), "arguments", sys.argv[1:])
model = torch.nn.Linear(4, 2)
with taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1)) as worker:
    for inputs in worker.batches(x, batch_size=-1):
        worker.step(model(inputs).sum())
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()
    (tmp_path / "package/data.py").write_text("import torch\nx = torch.zeros(8, 4)\n")
    (tmp_path / "package/train.py").write_text(TRAIN)
    return tmp_path


def test_a_module_and_its_mistake(package: Path) -> None:
    words = ("run", "-n", "2", "--name", "one", "-m", "package.train", "--rate", "3")
    command = [*taut_command(), *words]  # before the environment: it sets a variable
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TAUT_")}
    done = subprocess.run(
        command,
        cwd=package,
        env=environment | {"OMP_NUM_THREADS": "3"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    [told] = [line for line in done.stderr.splitlines() if "error:" in line]
    assert told.endswith("train.py, line 10: batch_size=-1: expected a whole number of at least 1")
    assert done.stdout == ""
    for index in (0, 1):
        log = (package / f"taut-runs/one/worker-{index}.log").read_text()
        assert "threads 3 arguments ['--rate', '3']" in log


def test_a_module_that_is_not_there_is_refused_before_anything_starts(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(package)
    assert str(script_of(Path("package.train"), module=True)) == "-m package.train"
    check_script(Path("-m json.tool"), "/")
    for name in ("package.trian", "packages.train", "package.train.x", "package/train.py", "package.train.py"):
        with pytest.raises(Misuse, match="-m"):
            script_of(Path(name), module=True)
    with pytest.raises(Misuse, match="a module"):
        check_script(Path("-m package.train"), "/")
    assert "package" not in sys.modules
