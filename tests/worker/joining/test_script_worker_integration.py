"""Scripts without ``with``: their ends are told, and the run has its model."""

from __future__ import annotations

from pathlib import Path

from taut.testing.cluster import LocalCluster

JOB = Path(__file__).with_name("ends_job.py")


def test_the_end_of_the_script_closes_fails_or_refuses(tmp_path: Path) -> None:
    with LocalCluster(JOB, 3, tmp_path / "run", args=["ranks"]) as cluster:
        outcome = cluster.outcome()
        exits = cluster.until_exits(3)
        logs = cluster.logs()
    assert outcome.model is not None, outcome
    assert outcome.samples_undone == 0
    assert outcome.workers[0].state == "finished"
    assert outcome.workers[1].reason.startswith("ValueError: boom")
    assert "second taut.join" in outcome.workers[2].reason
    assert sorted(each.code for each in exits) == [0, 1, 2]
    assert logs.count("with taut.join(...) as worker:") == 1


def test_ctrl_c_saves_the_model_of_a_loop_without_with(tmp_path: Path) -> None:
    with LocalCluster(JOB, 2, tmp_path / "run", args=[str(tmp_path)]) as cluster:
        cluster.until(lambda _: all((tmp_path / f"at-20-{rank}").exists() for rank in (0, 1)), "20 steps of each")
        cluster.supervisor.drain("Ctrl-C")
        outcome = cluster.outcome()
        exits = cluster.until_exits(2)
        assert outcome.exit_code == 0, cluster.logs()
    assert outcome.model is not None and outcome.identical
    assert [each.code for each in exits] == [0, 0]
