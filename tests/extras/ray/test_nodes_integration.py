"""`taut run --engine ray` on three nodes: one is removed in mid-run, and one is added."""

from __future__ import annotations

from pathlib import Path

import psutil
from commands import PATIENCE_S, Command
from ray.cluster_utils import Cluster

from taut.supervisor.storage.store_reader import load_run

STORE = 100 << 20
JOB = str(Path(__file__).resolve().parents[2] / "integration" / "job.py")


def test_a_lost_node_is_a_departure_and_a_new_one_a_join(cluster: Cluster, tmp_path: Path) -> None:
    """The run has three workers again when a node is added, ends with exit code 0, and its model is saved."""
    gate, trail = tmp_path / "gate", tmp_path / "trail"
    trail.mkdir()
    flags = f"--engine ray --ray-address {cluster.address} --ray-placement STRICT_SPREAD -n 3 --name churn".split()
    with Command(tmp_path, "run", *flags, JOB, "--gate", str(gate), "--trail", str(trail)) as run:
        run.until("start: training starts with 3 of 3 workers")
        run.until(r"training +epoch")
        before = {int(path.name) for path in trail.iterdir()}
        cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
        run.until("gone: worker [012]")
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
        run.until("joined: worker 3")
        gate.touch()
        assert run.end() == 0, run.text
    record = load_run(tmp_path / "taut-runs", "churn")
    assert record.summary.state == "finished"
    assert (tmp_path / "taut-runs/churn/model.safetensors").exists()
    lost = [row for row in record.workers if row.reason]
    assert [row.rank for row in record.workers] == [0, 1, 2, 3] and len(lost) == 1
    everyone = {int(path.name) for path in trail.iterdir()}
    assert len(everyone - before) == 1, "the worker on the new node trained"
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in everyone if psutil.pid_exists(pid)], PATIENCE_S)
    assert not alive
