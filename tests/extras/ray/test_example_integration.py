"""The example of a run on a Ray cluster, as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

EXAMPLE = str(Path(__file__).resolve().parents[3] / "examples" / "ray_trainer.py")


def test_the_example_trains_on_the_cluster(cluster: Any, tmp_path: Path) -> None:
    words = [sys.executable, EXAMPLE, "--workers", "2", "--epochs", "1", "--storage", str(tmp_path)]
    environment = os.environ | {"RAY_ADDRESS": cluster.address}
    done = subprocess.run(words, env=environment, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "% of the test samples right, 1437 samples trained" in done.stdout, done.stdout
