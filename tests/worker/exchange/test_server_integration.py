"""Real processes and sockets: the parameter server, alive and dead, and its relatives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from taut.testing.cluster import LocalCluster

JOB = Path(__file__).parents[2] / "integration" / "job.py"


@pytest.mark.parametrize(
    ("settings", "identical"),
    [
        ({"strategy": "server:shards=2,push=2,pull=2,staleness=rate"}, True),
        ({"strategy": "ssp:1"}, True),
        ({"strategy": "async", "topology": "line"}, True),
        ({"strategy": "codistillation:every=5"}, False),
    ],
    ids=lambda value: str(value.get("strategy")) if isinstance(value, dict) else "",
)
def test_a_model_comes_out(tmp_path: Path, settings: dict[str, object], identical: bool) -> None:
    chosen = {"codec": None, **settings}
    with LocalCluster(JOB, 3, tmp_path / "run", args=["--epochs", "2"], settings=chosen) as cluster:
        outcome = cluster.outcome()
        cluster.until_exits(3)
        found = [float(each) for each in re.findall(r"accuracy ([0-9.]+)", cluster.logs())]
    assert outcome.exit_code == 0, outcome
    assert outcome.identical == identical
    assert outcome.samples_undone == 0
    assert len(found) == 3
    assert min(found) > 0.4  # of five classes
    if identical:
        assert max(found) - min(found) < 1e-6


def test_the_run_survives_its_server(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    chosen: dict[str, object] = {"strategy": "server:shards=2", "codec": None}
    with LocalCluster(JOB, 3, tmp_path / "run", args=["--gate", str(gate)], settings=chosen) as cluster:
        cluster.until(lambda v: len(v.workers) == 3 and all(r.statistics.steps > 20 for r in v.workers), "steps")
        cluster.signal(0)
        cluster.until(lambda v: cluster.row(0).reason != "", "the death to be noticed")
        before = {row.rank: row.statistics.steps for row in cluster.poll().workers}
        cluster.until(lambda v: all(r.statistics.steps > before[r.rank] + 20 for r in v.workers if r.rank), "more steps")
        gate.touch()
        outcome = cluster.outcome()
    assert outcome.exit_code == 0, outcome
    assert outcome.identical
    assert outcome.samples_undone == 0


def test_or_ends_with_it_and_the_models_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where the workers run, and save
    chosen: dict[str, object] = {"strategy": "server:on_death=stop", "codec": None}
    args = ["--gate", str(tmp_path / "never")]
    with LocalCluster(JOB, 3, tmp_path / "run", args=args, settings=chosen) as cluster:
        cluster.until(lambda v: len(v.workers) == 3 and all(r.statistics.steps > 20 for r in v.workers), "steps")
        cluster.signal(0)
        outcome = cluster.outcome()
        cluster.until_exits(3)
        logs = cluster.logs()
    assert outcome.exit_code == 1
    assert "PeerLost" in outcome.workers[1].reason
    assert "on_death=stop" in outcome.workers[1].reason
    assert "the model as this worker has it is in" in logs
    assert len(list(tmp_path.glob("*-worker-[12].safetensors"))) == 2
