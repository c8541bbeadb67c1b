"""The gossip family with real processes and sockets: it trains, and survives a death and a join."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from taut.testing.cluster import LocalCluster

JOB = Path(__file__).parents[2] / "integration" / "job.py"


@pytest.mark.parametrize(
    ("strategy", "topology", "codec"),
    [("gossip", "ring", "tether"), ("adpsgd", "ring", "dense")],
)
def test_it_trains(tmp_path: Path, strategy: str, topology: str, codec: str) -> None:
    settings: dict[str, object] = {"strategy": strategy, "topology": topology, "codec": codec}
    with LocalCluster(JOB, 4, tmp_path / "run", args=["--epochs", "4"], settings=settings) as cluster:
        outcome = cluster.outcome()
        cluster.until_exits(4)
        found = [float(each) for each in re.findall(r"accuracy ([0-9.]+)", cluster.logs())]
    assert outcome.exit_code == 0, outcome
    assert outcome.samples_undone == 0
    assert sum(row.statistics.samples for row in outcome.workers.values()) == 4 * 2000
    assert len(found) == 4
    assert min(found) > 0.6


def test_a_varying_graph_survives_a_death_and_a_join(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    settings: dict[str, object] = {"strategy": "sgp:overlap=1", "topology": "one-peer", "codec": "dense"}
    with LocalCluster(JOB, 3, tmp_path / "run", args=["--gate", str(gate)], settings=settings) as cluster:
        cluster.until(lambda v: len(v.workers) == 3 and all(r.statistics.steps > 30 for r in v.workers), "steps")
        cluster.signal(1)
        cluster.until(lambda v: cluster.row(1).reason != "", "the death to be noticed")
        cluster.add(1)
        cluster.until(lambda v: any(r.rank == 3 and r.statistics.steps > 30 for r in v.workers), "the fourth to train")
        gate.touch()
        outcome = cluster.outcome()
    assert outcome.exit_code == 0, outcome
    assert outcome.model is not None


def test_two_momenta_are_refused_before_training(tmp_path: Path) -> None:
    settings: dict[str, object] = {"strategy": "dpsgd:momentum=quasi-global", "topology": "ring", "codec": "dense"}
    with LocalCluster(JOB, 2, tmp_path / "run", settings=settings) as cluster:
        cluster.until_exits(2)
        logs = cluster.logs()
    assert not any(each.clean for each in cluster.exits)
    assert "dpsgd:momentum=quasi-global with SGD(momentum=0.9)" in logs
    assert "try SGD(momentum=0)" in logs
