"""A DataLoader with processes of its own under two workers: it reads ahead, and nobody stands still for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.testing.cluster import LocalCluster

JOB = Path(__file__).parents[1] / "loader_job.py"


@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_processes_that_read_ahead(tmp_path: Path, strategy: str) -> None:
    settings: dict[str, object] = {"strategy": strategy, "codec": "dense" if strategy == "sync" else "tether"}
    with LocalCluster(JOB, 2, tmp_path / "run", args=[str(tmp_path)], settings=settings) as cluster:
        outcome = cluster.outcome()
        cluster.until_exits(2)
        assert outcome.exit_code == 0, cluster.logs()
        assert cluster.logs().count("the main one is worker 0") == 1
        assert "the main one is worker 1" not in cluster.logs()
    seen = [int(word) for rank in (0, 1) for word in (tmp_path / f"seen-{rank}").read_text().split()]
    assert sorted(seen) == sorted(3 * list(range(192)))
    assert outcome.samples_undone == 0
