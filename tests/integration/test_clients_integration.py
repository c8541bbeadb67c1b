"""Real processes that train clients: one is killed in a round, and the others complete it and train all clients on."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.supervisor.metrics import counted
from taut.testing.cluster import LocalCluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "federated.py"


@pytest.mark.long
def test_a_worker_that_is_killed_costs_its_clients_of_one_round(tmp_path: Path) -> None:
    settings = {"strategy": "fedavg:fraction=0.4,clients=50"}
    with LocalCluster(EXAMPLE, 3, tmp_path / "run", args=["--rounds", "40"], settings=settings) as cluster:
        cluster.until(lambda v: len(v.workers) == 3 and all(r.statistics.own_passes > 2 for r in v.workers), "rounds")
        cluster.signal(1)
        outcome = cluster.outcome()
    assert outcome.exit_code == 0, (outcome, cluster.logs())
    assert outcome.identical
    made = counted(next(row.statistics for row in outcome.workers.values() if row.state == "finished"))
    assert made["clients_lost"] <= 7, "the third of a round's twenty clients, rounded up"
    assert 40 * 20 - 7 <= made["clients_trained"] <= 40 * 20 + 7
