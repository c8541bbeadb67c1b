"""`taut run --engine ray` on three nodes: one is removed in mid-run, and one is added."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from commands import JOB, PATIENCE_S, Command
from nodes import add_node
from ray.cluster_utils import Cluster

from taut.engines.ray.bundles import NODE_STEP
from taut.supervisor.storage.store_reader import load_run


def command_lines() -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_a_lost_node_is_a_departure_and_a_new_one_a_join(cluster: Cluster, tmp_path: Path, strategy: str) -> None:
    """The run has three workers again when a node is added, ends with exit code 0, and its model is saved."""
    gate, trail = tmp_path / "gate", tmp_path / "trail"
    trail.mkdir()
    flags = ["--engine", "ray", "--ray-address", cluster.address, "--ray-placement", "STRICT_SPREAD", "-n", "3"]
    flags += ["--name", "churn", "--strategy", strategy]
    with Command(tmp_path, "run", *flags, JOB, "--gate", str(gate), "--trail", str(trail)) as run:
        run.until("start: training starts with 3 of 3 workers")
        run.when(lambda: len(list(trail.iterdir())) == 3, "three workers that made a pass")
        token = (tmp_path / "taut-runs/churn/token").read_text().strip()
        assert not [line for line in command_lines() if token in line]
        cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
        run.until("gone: worker [012]")
        add_node(cluster)
        run.until("joined: worker 3")
        run.when(lambda: len(list(trail.iterdir())) == 4, "a pass of the worker on the new node")
        gate.touch()
        assert run.end() == 0, run.text
    record = load_run(tmp_path / "taut-runs", "churn")
    assert record.summary.state == "finished"
    assert (tmp_path / "taut-runs/churn/model.safetensors").exists()
    assert [row.rank for row in record.workers] == [0, 1, 2, 3]
    assert len([row for row in record.workers if row.reason]) == 1
    assert len({row.pid // NODE_STEP for row in record.workers}) == 4, "process ids of four nodes are told apart"
    everyone = {row.pid % NODE_STEP for row in record.workers}
    assert everyone == {int(path.name) for path in trail.iterdir()}
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in everyone if psutil.pid_exists(pid)], PATIENCE_S)
    assert not alive
    logs = Path(cluster.head_node.get_logs_dir_path())
    assert not [path for path in logs.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]


def test_a_cluster_that_grows_is_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    flags = f"--engine ray --ray-address {cluster.address} --ray-wait-s 100 -n 4 -v".split()
    with Command(tmp_path, "run", *flags, JOB) as run:
        run.until("workers=4")
        node = add_node(cluster)
        assert run.end() == 0, run.text
    cluster.remove_node(node)
