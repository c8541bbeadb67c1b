"""The example of accelerate, in two processes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from forked_zygotes import script_command, taut_command

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "accelerate_mlp.py")


@pytest.mark.parametrize("strategy", ["sync", pytest.param("async", marks=pytest.mark.long)])
def test_it_trains_in_two_processes(strategy: str, tmp_path: Path) -> None:
    words = [*taut_command(), "run", "-n", "2", "--strategy", strategy, EXAMPLE]
    done = subprocess.run(words, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told = done.stdout + done.stderr
    assert "replicas: identical" in told
    found = re.search(r"accuracy (\d\.\d+)", told)
    assert found is not None and float(found[1]) > 0.9, told


def test_it_trains_alone(tmp_path: Path) -> None:
    done = subprocess.run(script_command(EXAMPLE), cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "accuracy" in done.stdout, done.stderr
