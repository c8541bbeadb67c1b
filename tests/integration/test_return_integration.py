"""A process that is stopped until the others go on without it, and then goes on: it is back, and nothing is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from taut.testing.cluster import LocalCluster

JOB = Path(__file__).with_name("job.py")


@pytest.mark.long
def test_a_stopped_process_is_given_up_and_comes_back_by_itself(tmp_path: Path) -> None:
    """The same process, model and optimizer under another rank; its script sees nothing of it."""
    gate = tmp_path / "gate"
    with LocalCluster(
        JOB, 3, tmp_path / "run", args=["--gate", str(gate), "--pace", "0.02", "--optimizer", "AdamW"]
    ) as cluster:
        cluster.until(lambda v: len(v.workers) == 3 and all(r.statistics.steps > 20 for r in v.workers), "steps")
        pid = cluster.row(2).pid
        cluster.signal(2, signal.SIGSTOP)
        try:
            cluster.until(lambda _: cluster.row(2).reason.startswith("silent for"), "it to be given up")
        finally:
            cluster.signal(2, signal.SIGCONT)
        cluster.until(lambda v: any(r.rank == 3 and r.statistics.steps > 20 for r in v.workers), "it to be back")
        assert cluster.row(3).pid == pid
        assert [row.rank for row in cluster.poll().workers if row.state != "gone"] == [0, 1, 3]
        gate.touch()
        outcome = cluster.outcome()
        exits = cluster.until_exits(3)
        told = cluster.logs()
    assert outcome.exit_code == 0, outcome
    assert [each.clean for each in exits] == [True, True, True]
    assert not outcome.failures, "who came back is no failure"
    assert outcome.identical
    assert outcome.exact
    assert outcome.samples_undone == 0
    assert "worker 2 was given up, and is back as worker 3" in told


@pytest.mark.long
def test_synchronous_training_takes_newcomers_and_takes_back_who_was_stopped(tmp_path: Path) -> None:
    """With the others' weights and Adam's averages: all make the same steps, to the last bit. Nobody waits for a newcomer
    whose script is not at its first batch."""
    gate, hold, settings = tmp_path / "gate", tmp_path / "hold", {"strategy": "sync:bucket_mib=0.001", "codec": "dense"}
    args = ["--gate", str(gate), "--pace", "0.02", "--optimizer", "AdamW", "--batch-norm"]
    os.mkfifo(hold)
    with LocalCluster(JOB, 3, tmp_path / "run", args=args, settings=settings) as cluster:
        cluster.until(lambda v: len(v.workers) == 3 and all(r.statistics.steps > 5 for r in v.workers), "steps")
        cluster.add(1, HOLD=str(hold))
        view = cluster.until(lambda v: len(v.workers) == 4, "the newcomer")
        before = view.workers[0].statistics.steps
        cluster.until(lambda v: v.workers[0].statistics.steps > before + 20, "the others to go on")
        assert cluster.row(3).state == "joining"
        hold.open("w").close()  # returns when the other end is open
        cluster.until(lambda _: cluster.row(3).statistics.steps > 5, "it to train")
        cluster.signal(2, signal.SIGSTOP)
        try:
            cluster.until(lambda _: cluster.row(2).reason.startswith("silent for"), "it to be given up")
        finally:
            cluster.signal(2, signal.SIGCONT)
        cluster.until(lambda v: any(r.rank == 4 and r.statistics.steps > 5 for r in v.workers), "it to be back")
        gate.touch()
        outcome = cluster.outcome()
        exits = cluster.until_exits(4)
        told = cluster.logs()
    assert outcome.exit_code == 0, outcome
    assert all(each.clean for each in exits)
    assert not outcome.failures
    assert outcome.identical and outcome.exact
    assert outcome.samples_undone == 0
    taken = [rank for rank, row in outcome.workers.items() if "taken_over=1" in row.statistics.counted]
    assert taken == [3, 4]
    assert "worker 2 was given up, and is back as worker 4" in told
