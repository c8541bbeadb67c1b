"""Two processes of `taut run`, each with a model of Keras; and a newcomer, in virtual time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from two_processes import KINDS, train_by_two

JOB = Path(__file__).with_name("keras_job.py")


@pytest.mark.parametrize(("strategy", "codec"), KINDS)
def test_two_processes_end_with_one_model(tmp_path: Path, strategy: str, codec: str) -> None:
    model = train_by_two(tmp_path, JOB, strategy, codec, "--told", str(tmp_path / "told"))
    rows = [line.split() for line in sorted((tmp_path / "told").read_text().splitlines())]
    assert [row[0] for row in rows] == ["0", "1"]
    assert sum(int(row[2]) for row in rows) == 8 * 160, "each sample, once a pass"
    ends = [np.float32([float(each) for each in row[4:9]]) for row in rows]
    np.testing.assert_allclose(*ends, atol=1e-5 if (strategy, codec) == ("async", "dense") else 0.0)
    saved = np.concatenate([model[name].ravel() for name in sorted(model) if name.startswith("_functional")])
    np.testing.assert_array_equal(ends[0], saved)
    assert np.square(ends[0] - np.float32([3.0, 1.0, 2.0, -1.0, 0.5])).sum() < 0.5 * 15.25
    if strategy == "sync":
        assert rows[0][9:] == rows[1][9:], "the optimizer's variables are equal, too"
