"""Real processes that change their strategy in mid-run: agreed upon, never half applied, also when one dies meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from taut.testing.cluster import LocalCluster

JOB = Path(__file__).with_name("job.py")


@pytest.mark.parametrize(
    ("schedule", "args"),
    [
        ("sync for 10 steps, then async for 20 steps, then averaging:every=4", []),
        ("dpsgd for 10 steps, then sync", ["--optimizer", "AdamW", "--own-loop"]),
        ("async for 10 steps, then adpsgd for 10 steps, then async", ["--batch-norm", "--epochs", "12"]),
    ],
)
def test_a_run_changes_its_strategy(tmp_path: Path, schedule: str, args: list[str]) -> None:
    with LocalCluster(JOB, 3, tmp_path / "run", args=args, settings={"strategy": schedule}) as cluster:
        outcome = cluster.outcome()
        cluster.until_exits(3)
    assert outcome.exit_code == 0, (outcome, cluster.logs())
    assert outcome.identical
    assert outcome.samples_undone == 0
    passes = int(args[args.index("--epochs") + 1]) if "--epochs" in args else 3
    assert sum(row.statistics.samples for row in outcome.workers.values()) == passes * 2000


def test_a_death_does_not_stop_the_change(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    settings = {"strategy": "sync for 20 steps, then async for 50 steps, then dpsgd"}
    with LocalCluster(JOB, 4, tmp_path / "run", args=["--gate", str(gate)], settings=settings) as cluster:
        cluster.until(lambda v: len(v.workers) == 4 and all(r.statistics.steps > 5 for r in v.workers), "steps")
        cluster.signal(3)
        cluster.until(lambda v: cluster.row(3).reason != "", "the death to be noticed")
        cluster.until(lambda v: all(r.statistics.steps > 120 for r in v.workers if r.rank != 3), "the last phase")
        gate.touch()
        outcome = cluster.outcome()
    assert outcome.exit_code == 0, (outcome, cluster.logs())
    assert outcome.identical  # dpsgd ends with the average of all


def test_workers_join_before_and_during_the_change(tmp_path: Path) -> None:
    """One is given the state in the first phase, and changes with the others; one whose script is not at its first batch
    when they change begins in the second."""
    gate, first, second = tmp_path / "gate", tmp_path / "first", tmp_path / "second"
    os.mkfifo(first)
    os.mkfifo(second)
    args, settings = ["--gate", str(gate), "--optimizer", "AdamW"], {"strategy": "sync for 20 steps, then async"}
    with LocalCluster(JOB, 1, tmp_path / "run", args=args, settings=settings, expected=2) as cluster:
        cluster.add(1, HOLD=str(first))  # nobody makes a step before it does
        cluster.until(lambda v: len(v.workers) == 2 and all(r.state == "training" for r in v.workers), "the start")
        cluster.add(1, HOLD=str(second))
        cluster.add(1)
        here = ["joining", "training"]
        cluster.until(lambda v: sorted(r.state for r in v.workers if r.rank > 1) == here, "two newcomers")
        first.open("w").close()  # returns when the other end is open
        view = cluster.until(lambda v: any(e.kind == "phase" for e in v.events), "the second phase")
        assert sorted(row.state for row in view.workers if row.rank > 1) == here
        second.open("w").close()
        cluster.until(lambda _: all(cluster.row(rank).statistics.steps > 30 for rank in range(4)), "all to train")
        gate.touch()
        outcome = cluster.outcome()
        exits = cluster.until_exits(4)
    assert outcome.exit_code == 0, (outcome, cluster.logs())
    assert all(each.clean for each in exits) and not outcome.failures
    assert outcome.identical and outcome.exact
    assert outcome.samples_undone == 0 and outcome.samples_again == 0
