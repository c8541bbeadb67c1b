"""``taut slurm`` writes a batch file: what is in it, where it goes, and what is refused before it is written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from taut.cli.main import app
from taut.errors import Misuse


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return tmp_path


def slurm(*words: object) -> Result:
    return CliRunner().invoke(app, ["slurm", *map(str, words)], catch_exceptions=False)


def test_flags_of_taut_run_are_variables_of_the_job(here: Path) -> None:
    flags = ("--nodes", 2, "--workers-per-node", 4, "--strategy", "ssp:3", "--checkpoint-every", "5m", "--threads", 2)
    assert slurm(*flags, "train.py", "--epochs", 3).exit_code == 0
    text = (here / "train.sbatch").read_text()
    for line in (
        "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=4",
        "#SBATCH --cpus-per-task=2",
        "export TAUT_STRATEGY=ssp:3",
        "export TAUT_CHECKPOINT_EVERY=5m",
        "export TAUT_THREADS=2",
        f"srun --kill-on-bad-exit=0 --wait=0 {sys.executable} train.py --epochs 3",
    ):
        assert line in text.splitlines(), text


def test_a_module_and_standard_output(here: Path) -> None:
    (here / "package").mkdir()
    (here / "package" / "__init__.py").write_text("")
    (here / "package" / "train.py").write_text("")
    told = slurm("-o", "-", "-m", "package.train").stdout
    assert "#SBATCH --job-name=package.train" in told and f"{sys.executable} -m package.train\n" in told
    assert not list(here.glob("*.sbatch"))


def test_a_file_that_is_there_is_kept(here: Path) -> None:
    (here / "mine").write_text("mine")
    with pytest.raises(Misuse, match="--force replaces it"):
        slurm("-o", "mine", "train.py")
    assert (here / "mine").read_text() == "mine"
    assert slurm("-o", "mine", "--force", "train.py").exit_code == 0
    assert (here / "mine").read_text().startswith("#!/bin/bash\n")


@pytest.mark.parametrize(
    "words",
    [
        ("nothing.py",),
        ("--strategy", "snyc", "train.py"),
        ("--topology", "torus:3x4", "--nodes", 2, "train.py"),
        ("--time", "tomorrow", "train.py"),
        ("--sbatch", "account = me", "train.py"),
    ],
)
def test_a_mistake_shows_now_and_not_when_the_job_starts(here: Path, words: tuple[object, ...]) -> None:
    with pytest.raises(Misuse):
        slurm(*words)
    assert not list(here.glob("*.sbatch"))
