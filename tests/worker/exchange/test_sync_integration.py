"""sync in real processes over real sockets: one model comes out, equal to the last bit, also when workers die."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from taut.testing.cluster import LocalCluster

JOB = Path(__file__).parents[2] / "integration" / "job.py"


@pytest.mark.parametrize(
    ("strategy", "args"),
    [
        ("sync:bucket_mib=0.001", ["--optimizer", "AdamW", "--batch-norm"]),
        pytest.param("sync:halving-doubling,every=3", ["--epochs", "2"], marks=pytest.mark.long),
        pytest.param("sync:backup=1", ["--own-loop"], marks=pytest.mark.long),
        ("sync:schedule=gloo", []),
    ],
)
def test_one_model_comes_out(tmp_path: Path, strategy: str, args: list[str]) -> None:
    with LocalCluster(JOB, 3, tmp_path / "run", args=args, settings={"strategy": strategy}) as cluster:
        outcome = cluster.outcome()
        cluster.until_exits(3)
        found = [float(value) for value in re.findall(r"accuracy ([0-9.]+)", cluster.logs())]
    assert outcome.exit_code == 0, outcome
    assert outcome.identical and outcome.exact
    assert sum(row.statistics.samples for row in outcome.workers.values()) == (2 if "--epochs" in args else 3) * 2000
    assert len(found) == 3 and len(set(found)) == 1 and found[0] > 0.6
    compared = [row.statistics.bytes_dense > 0 for row in outcome.workers.values()]
    assert compared == [strategy != "sync:schedule=gloo"] * 3, "gloo's own bytes are not counted"


@pytest.mark.parametrize("codec", ["topk:density=0.05", pytest.param("sign:vote=yes", marks=pytest.mark.long)])
def test_one_model_comes_out_of_compressed_gradients(tmp_path: Path, codec: str) -> None:
    settings = {"strategy": "sync", "codec": codec, "explicit": ["strategy", "codec"]}
    with LocalCluster(JOB, 2, tmp_path / "run", settings=settings) as cluster:
        outcome = cluster.outcome()
        cluster.until_exits(2)
        found = [float(value) for value in re.findall(r"accuracy ([0-9.]+)", cluster.logs())]
    assert outcome.exit_code == 0, outcome
    assert outcome.identical and outcome.exact
    assert len(found) == 2 and len(set(found)) == 1 and found[0] > 0.6
    rows = [row.statistics for row in outcome.workers.values()]
    assert all("coded=1" in row.counted for row in rows)
    # Of both: one that gets fewer batches takes part in the rounds of the other.
    assert sum(row.bytes_sent for row in rows) < 0.2 * sum(row.bytes_dense for row in rows)


@pytest.mark.parametrize(("strategy", "victim"), [("sync", 1), ("sync:backup=1", 0)])  # 0 coordinates
def test_the_others_go_on_when_a_worker_is_killed(tmp_path: Path, strategy: str, victim: int) -> None:
    gate, settings = tmp_path / "gate", {"strategy": strategy}
    with LocalCluster(JOB, 3, tmp_path / "run", args=["--gate", str(gate)], settings=settings) as cluster:
        cluster.until(lambda v: len(v.workers) == 3 and all(r.statistics.steps > 30 for r in v.workers), "steps")
        cluster.signal(victim)
        cluster.until(lambda v: cluster.row(victim).reason != "", "the death to be noticed")
        before = {row.rank: row.statistics.steps for row in cluster.poll().workers}
        others = [rank for rank in range(3) if rank != victim]
        cluster.until(
            lambda v: all(cluster.row(rank).statistics.steps > before[rank] + 30 for rank in others), "more steps"
        )
        gate.touch()
        outcome = cluster.outcome()
    assert outcome.exit_code == 0, outcome
    assert outcome.identical and outcome.exact
    assert outcome.samples_undone == 0


def test_a_group_of_gloo_says_what_to_use_when_it_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the survivor saves its model where it is
    args, settings = ["--gate", str(tmp_path / "never")], {"strategy": "sync:schedule=gloo"}
    with LocalCluster(JOB, 2, tmp_path / "run", args=args, settings=settings) as cluster:
        cluster.until(lambda v: len(v.workers) == 2 and all(r.statistics.steps > 30 for r in v.workers), "steps")
        cluster.signal(1)
        cluster.until_exits(2)
        said = cluster.logs()
    assert "PeerLost" in said and "sync:schedule=ring" in said
    assert list(tmp_path.glob("*.safetensors"))
