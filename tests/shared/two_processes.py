"""Two processes of `taut run` train a script of another library: what all tests of tests/extras ask of such a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from commands import Command
from safetensors.numpy import load_file

KINDS = [("async", "tether"), ("async", "dense"), ("sync", "dense")]  # sync refuses the tether


def train_by_two(folder: Path, script: Path, strategy: str, codec: str, *args: str) -> dict[str, Any]:
    """Return the saved model of a run whose replicas ended alike: to the last bit, where that is promised."""
    options = ("--workers", "2", "--strategy", strategy, "--codec", codec, "--logs", "all")
    with Command(folder, "run", *options, str(script), *args) as run:
        assert run.end() == 0, run.text
        assert "finished" in run.text
        distance = re.search(r"consensus distance (\S+)", run.text)
        if (strategy, codec) == ("async", "dense") and distance is not None:
            assert float(distance[1]) < 1e-5, "sums of float32, in the order of their arrival"
        else:
            assert "replicas: identical" in run.text, run.text
    [model] = folder.glob("taut-runs/*/model.safetensors")
    return load_file(model)
