"""Two processes of `taut run`, each with a Trainer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import Command
from two_processes import KINDS, train_by_two

JOB = Path(__file__).with_name("hf_job.py")


@pytest.mark.parametrize(("strategy", "codec"), KINDS)
def test_two_processes_end_with_one_model(tmp_path: Path, strategy: str, codec: str) -> None:
    model = train_by_two(tmp_path, JOB, strategy, codec, "--told", str(tmp_path / "told"))
    rows = [line.split() for line in sorted((tmp_path / "told").read_text().splitlines())]
    assert [row[0] for row in rows] == ["0", "1"]
    assert sum(int(row[1]) for row in rows) == 8 * 160 and all(row[1] == row[2] for row in rows), (
        "each sample, once a pass"
    )
    ends = [np.float32([float(each) for each in row[4:]]) for row in rows]
    np.testing.assert_allclose(*ends, atol=1e-5 if (strategy, codec) == ("async", "dense") else 0.0)
    np.testing.assert_array_equal(ends[0], np.concatenate([model["layer.bias"], model["layer.weight"].ravel()]))
    assert np.square(ends[0] - np.float32([3.0, 1.0, 2.0, -1.0, 0.5])).sum() < 0.5 * 15.25


def test_what_looks_at_one_replica_alone_is_refused(tmp_path: Path) -> None:
    with Command(tmp_path, "run", "--workers", "2", str(JOB), "--told", "told", "--best") as run:
        assert run.end() == 2
    assert "a Trainer with load_best_model_at_end, in a run of several" in run.text
