"""The averaging family on real processes and sockets: one model comes out, whoever dies or joins."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from taut.testing.cluster import LocalCluster

JOB = Path(__file__).parents[2] / "integration" / "job.py"


@pytest.mark.parametrize(
    ("strategy", "args"),
    [
        ("diloco:every=10,fragments=2,overlap=3", ["--optimizer", "AdamW", "--batch-norm"]),
        ("admm:rho=0.1,every=5", ["--own-loop"]),
    ],
)
def test_one_model_comes_out(tmp_path: Path, strategy: str, args: list[str]) -> None:
    settings = {"strategy": strategy, "codec": "dense"}
    with LocalCluster(JOB, 3, tmp_path / "run", args=args, settings=settings) as cluster:
        outcome = cluster.outcome()
        cluster.until_exits(3)
        accuracies = {float(found) for found in re.findall(r"accuracy ([0-9.]+)", cluster.logs())}
    assert outcome.exit_code == 0, outcome
    assert outcome.identical
    assert outcome.samples_undone == 0
    assert sum(row.statistics.samples for row in outcome.workers.values()) == 3 * 2000
    assert len(accuracies) == 1
    assert accuracies.pop() > 0.6


def test_death_of_the_lowest_rank_and_a_late_join(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    settings = {"strategy": "easgd:every=5", "codec": "dense"}
    with LocalCluster(JOB, 3, tmp_path / "run", args=["--gate", str(gate)], settings=settings) as cluster:
        cluster.until(lambda v: all(r.statistics.steps > 20 for r in v.workers) and len(v.workers) == 3, "steps")
        cluster.signal(0)
        cluster.until(lambda v: cluster.row(0).reason != "", "the death to be noticed")
        before = {row.rank: row.statistics.steps for row in cluster.poll().workers}
        cluster.until(lambda v: all(r.statistics.steps > before[r.rank] + 20 for r in v.workers if r.rank), "the others")
        cluster.add(1)
        cluster.until(lambda v: any(r.rank == 3 and r.statistics.steps > 20 for r in v.workers), "the fourth to train")
        gate.touch()
        outcome = cluster.outcome()
    assert outcome.exit_code == 0, outcome
    assert outcome.identical
    assert outcome.samples_undone == 0
