"""Real processes, real sockets: one model, the hash law, deaths and late joins."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from forked_zygotes import script_command

from taut.testing.cluster import LocalCluster

JOB = Path(__file__).with_name("job.py")


def accuracies(cluster: LocalCluster) -> list[float]:
    return [float(found) for found in re.findall(r"accuracy ([0-9.]+)", cluster.logs())]


@pytest.mark.parametrize(
    ("workers", "codec", "args"),
    [
        (1, "tether", []),
        (2, "threshold", ["--optimizer", "SGD"]),
        (4, "tether", ["--optimizer", "AdamW", "--batch-norm"]),
        (6, "tether:tau=2^-8", ["--own-loop"]),
    ],
)
def test_one_model_comes_out(tmp_path: Path, workers: int, codec: str, args: list[str]) -> None:
    with LocalCluster(JOB, workers, tmp_path / "run", args=args, settings={"codec": codec}) as cluster:
        outcome = cluster.outcome()
        cluster.until_exits(workers)
        found = accuracies(cluster)
    assert outcome.exit_code == 0, outcome
    assert outcome.identical
    assert outcome.exact
    assert outcome.samples_undone == 0
    assert sum(row.statistics.samples for row in outcome.workers.values()) == 3 * 2000
    assert len(found) == workers
    assert max(found) - min(found) < 1e-6  # every process ends with the run's model, batch norm included
    assert found[0] > 0.6
    state = torch.load(outcome.model.with_suffix(".pt"), weights_only=True)
    assert {"0.weight", "3.bias"} <= set(state)


def test_dense_agrees_within_rounding(tmp_path: Path) -> None:
    with LocalCluster(JOB, 2, tmp_path / "run", settings={"codec": "dense"}) as cluster:
        outcome = cluster.outcome()
        cluster.until_exits(2)
        found = accuracies(cluster)
    assert outcome.exit_code == 0
    assert not outcome.exact
    assert abs(found[0] - found[1]) < 0.02


def test_death_and_late_join(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with LocalCluster(JOB, 4, tmp_path / "run", args=["--gate", str(gate)]) as cluster:
        cluster.until(lambda v: all(r.statistics.steps > 50 for r in v.workers) and len(v.workers) == 4, "steps")
        cluster.signal(2)
        cluster.until(lambda v: cluster.row(2).reason != "", "the death to be noticed")
        before = {row.rank: row.statistics.steps for row in cluster.poll().workers}
        cluster.add(1)
        cluster.until(lambda v: any(r.rank == 4 and r.statistics.steps > 50 for r in v.workers), "the fifth to train")
        after = {row.rank: row.statistics.steps for row in cluster.poll().workers}
        assert all(after[rank] > before[rank] for rank in (0, 1, 3)), "the others paused"
        gate.touch()
        outcome = cluster.outcome()
    assert outcome.exit_code == 0, outcome
    assert outcome.identical
    assert "SIGKILL" in outcome.workers[2].reason
    assert outcome.samples_undone == 0


@pytest.mark.parametrize(("flag", "reason"), [("--nan-at", "loss is nan"), ("--raise-at", "broke on purpose")])
def test_a_failing_script_is_told_and_the_others_go_on(tmp_path: Path, flag: str, reason: str) -> None:
    with LocalCluster(JOB, 3, tmp_path / "run", args=[flag, "10"]) as cluster:
        outcome = cluster.outcome()
    assert outcome.exit_code == 1
    assert outcome.model is not None
    assert outcome.identical
    assert reason in outcome.workers[1].reason
    assert outcome.samples_undone == 0


def test_another_model_is_refused(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with LocalCluster(JOB, 2, tmp_path / "run", args=["--gate", str(gate)]) as cluster:
        cluster.until(lambda v: len(v.workers) == 2 and v.state == "training", "training")
        cluster.add(1, EXTRA_HIDDEN="1")
        cluster.until_exits(1)
        assert not cluster.exits[0].clean
        assert "0.weight" in cluster.logs()
        gate.touch()
        outcome = cluster.outcome()
    assert outcome.exit_code == 0, outcome
    assert outcome.identical


def test_a_wrong_token_is_refused(tmp_path: Path) -> None:
    from taut.transport.keys import RunKeys

    gate = tmp_path / "gate"
    with LocalCluster(JOB, 1, tmp_path / "run", args=["--gate", str(gate)]) as cluster:
        cluster.until(lambda v: v.state == "training", "training")
        cluster.add(1, TAUT_TOKEN=RunKeys.generate().token)
        cluster.until_exits(1)
        assert not cluster.exits[0].clean
        assert "token" in cluster.logs()
        gate.touch()
        assert cluster.outcome().exit_code == 0


def test_a_clean_stop_drains_and_saves(tmp_path: Path) -> None:
    with LocalCluster(JOB, 2, tmp_path / "run", args=["--gate", str(tmp_path / "never")]) as cluster:
        cluster.until(lambda v: all(r.statistics.steps > 20 for r in v.workers) and len(v.workers) == 2, "steps")
        cluster.supervisor.drain("the test says so")
        cluster.until(lambda v: v.state == "finished", "the end")
        (tmp_path / "never").touch()
        outcome = cluster.outcome()
    assert outcome.exit_code == 0, outcome
    assert outcome.identical
    assert outcome.model.exists()


def test_ctrl_c_in_one_worker_lets_it_leave_and_the_others_go_on(tmp_path: Path) -> None:
    """What its codec had not sent yet is handed on, and the sums stay exact."""
    gate, settings = tmp_path / "gate", {"codec": "threshold"}
    with LocalCluster(JOB, 2, tmp_path / "run", args=["--gate", str(gate)], settings=settings) as cluster:
        cluster.until(lambda v: len(v.workers) == 2 and v.state == "training", "training")
        environment = {**os.environ, **cluster.environment}
        guest = subprocess.Popen([*script_command(JOB), *cluster.args], env=environment, stderr=subprocess.DEVNULL)
        try:
            cluster.until(lambda v: any(r.rank == 2 and r.statistics.steps > 20 for r in v.workers), "the guest to train")
            guest.send_signal(signal.SIGINT)
            cluster.until(lambda v: cluster.row(2).reason != "", "the guest to leave")
            assert guest.wait(30) != 0
        finally:
            guest.kill()
        gate.touch()
        outcome = cluster.outcome()
    assert outcome.exit_code == 0, outcome
    assert outcome.identical
    assert "left" in outcome.workers[2].reason
    assert outcome.samples_undone == 0
