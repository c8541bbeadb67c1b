"""The example of a run on a Ray cluster, as a user starts it: with a cluster of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = str(Path(__file__).resolve().parents[3] / "examples" / "ray_trainer.py")


def test_the_example_trains_on_a_cluster_of_its_own(tmp_path: Path) -> None:
    words = [sys.executable, EXAMPLE, "--workers", "2", "--epochs", "1", "--storage", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(words, env=environment, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "% of the test samples right, 1437 samples trained" in done.stdout, done.stdout
