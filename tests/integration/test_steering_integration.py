"""Real workers whose owner pauses one of them and changes the learning rate and the slack while they train."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from taut.cli.main import app
from taut.supervisor.control import DrainRun, Order, Pause, Tune, order
from taut.supervisor.storage.previous_run import read_previous_run
from taut.testing.cluster import LocalCluster

JOB = Path(__file__).with_name("steered_job.py")


@pytest.mark.parametrize(
    ("strategy", "args"),
    [
        ("async", []),
        ("sync", []),
        pytest.param("sync:schedule=gloo", [], marks=pytest.mark.long),
        pytest.param("ssp:2", [], marks=pytest.mark.long),
        pytest.param("averaging:every=4", [], marks=pytest.mark.long),
        pytest.param("dpsgd", ["--own-loop"], marks=pytest.mark.long),
    ],
)
def test_a_paused_worker_stands_still_the_others_go_on_and_all_change_their_rate(
    tmp_path: Path, strategy: str, args: list[str]
) -> None:
    with LocalCluster(JOB, 3, tmp_path / "run", args=args, settings={"strategy": strategy, "codec": None}) as cluster:

        def give(one: Order) -> None:
            order(read_previous_run(cluster.run_dir), one)

        def made(rank: int) -> int:
            return cluster.row(rank).statistics.steps

        def further(ranks: tuple[int, ...], since: dict[int, int], by: int) -> bool:
            return all(made(rank) >= since[rank] + by for rank in ranks)

        cluster.until(
            lambda view: len(view.workers) == 3 and all(one.statistics.steps > 5 for one in view.workers), "steps"
        )
        give(Pause(1, "by the test"))
        then = {rank: made(rank) for rank in range(3)}
        cluster.until(lambda _: further((0, 2), then, 200), "the others' steps")
        stood = made(1)
        assert cluster.row(1).paused and stood < then[1] + 100
        cluster.until(lambda _: further((0, 2), then, 300), "more of them")
        assert made(1) == stood

        fixed = "gloo" in strategy  # its workers agree on nothing but the sum
        if not fixed:
            give(Tune("by the test", rate=0.5))
        give(Pause(1, "by the test", paused=False))
        then = {rank: made(rank) for rank in range(3)}
        cluster.until(lambda _: further((0, 1, 2), then, 50), "steps of all")
        give(DrainRun("enough"))
        outcome = cluster.outcome()
    assert outcome.exit_code == 0 and outcome.identical in (True, None), (outcome, cluster.logs())
    with sqlite3.connect(cluster.run_dir / "run.sqlite") as store:
        for rank in range(3):
            rates = [value for (value,) in store.execute("select value from metric where rank = ? order by step", [rank])]
            assert rates[0] == pytest.approx(0.0625) and rates[-1] == pytest.approx(0.0625 if fixed else 0.03125)
    store.close()


def test_the_slack_of_tether_changes_in_mid_run(tmp_path: Path) -> None:
    settings = {"strategy": "async", "codec": "tether:slack=2^-9"}
    with LocalCluster(JOB, 2, tmp_path / "run", settings=settings) as cluster:
        cluster.until(lambda v: len(v.workers) == 2 and all(r.statistics.tau == 2.0**-10 for r in v.workers), "the first")
        order(read_previous_run(cluster.run_dir), Tune("by the test", slack=2.0**-6))
        cluster.until(lambda v: all(row.statistics.tau == 2.0**-7 for row in v.workers), "the other slack")
        order(read_previous_run(cluster.run_dir), DrainRun("enough"))
        outcome = cluster.outcome()
    assert outcome.exit_code == 0 and outcome.identical, cluster.logs()


def test_what_the_page_can_do_the_command_line_can_do(tmp_path: Path) -> None:
    settings: dict[str, object] = {"strategy": "async", "codec": "tether:slack=2^-9", "checkpoint_every": "1h"}

    def steer(*words: str) -> str:
        done = CliRunner().invoke(app, ["steer", *words, "--runs-dir", str(tmp_path)])
        return done.output + str(done.exception or "")

    with LocalCluster(JOB, 2, tmp_path / "run", settings=settings) as cluster:
        cluster.until(lambda v: len(v.workers) == 2 and all(r.statistics.steps > 5 for r in v.workers), "steps")
        assert "stops after its step" in steer("pause", "run", "1")
        assert "is paused" in steer("pause", "run", "1")
        assert "goes on" in steer("resume", "run", "1")
        assert "next step" in steer("tune", "run", "--lr-factor", "0.5", "--slack", "2^-6")
        cluster.until(lambda v: all(row.statistics.tau == 2.0**-7 for row in v.workers), "the other slack")
        assert cluster.supervisor.view().rate == 0.5
        assert "begun" in steer("checkpoint", "run")
        cluster.until(
            lambda v: any("checkpoint 1: 2 parts" in one.text for one in v.events if one.kind == "checkpoint"), "it"
        )
        for wrong, expected in (
            (("pause", "run", "7"), "a worker that is in the run"),
            (("pause", "run", "x"), "a whole number"),
            (("tune", "run"), "--lr-factor or --slack"),
            (("tune", "run", "--lr-factor", "half"), "a number"),
            (("tune", "run", "--slack", "0.3"), "a power of two"),
        ):
            assert expected in steer(*wrong)
        order(read_previous_run(cluster.run_dir), DrainRun("enough"))
        outcome = cluster.outcome()
        asked = [one.text for one in cluster.supervisor.view().events if one.kind in ("paused", "resumed", "tuned")]
    assert outcome.exit_code == 0 and len(asked) == 3 and all(" by " in text for text in asked), asked
