"""Scores that a worker sends in the course of the run: kept, and the reason of an early end that all workers take."""

from __future__ import annotations

from scripted import Restarted, Scripted

from taut.core.messages import Drain, EndRun, MetricPoint, Validated
from taut.supervisor.run.actions import KeepMetrics


def test_the_run_is_drained_for_all_when_the_main_worker_s_scores_no_longer_become_better() -> None:
    run = Scripted(2)
    run.cluster.early.patience = 2
    run.train(0, 1)
    kept = run.say(0, Validated(10, 0.5, took_s=0.25))
    assert KeepMetrics(0, [MetricPoint(10, "validation", 0.5)]) in kept
    for rank, step, score in ((1, 20, 0.1), (1, 30, 0.1), (0, 20, 0.4), (0, 30, 0.6), (0, 40, None)):
        run.say(rank, Validated(step, score))
    assert not run.heard(0, Drain), "worker 1 is not the main one, and the last best score is one evaluation old"
    run.say(0, Validated(50, note="validate raised ValueError: no data"))
    (told,), (other,) = run.heard(0, Drain), run.heard(1, Drain)
    assert told == other
    assert told.reason == "stopped early: no better score in 2 evaluations since 0.6 after 30 steps"
    assert "0.6 after 30 steps of worker 0, the best so far" in run.told("validation")
    assert "after 50 steps of worker 0: validate raised ValueError: no data" in run.told("validation")


def test_a_supervisor_that_comes_back_knows_the_best_score() -> None:
    run = Restarted(2)
    run.train(0, 1)
    run.say(0, Validated(10, 0.5))
    run.say(0, Validated(20, 0.4))
    run.keep()
    run.come_back()
    assert (run.cluster.early.best, run.cluster.early.step, run.cluster.early.since) == (0.5, 10, 1)


def test_when_the_main_worker_dies_the_next_one_s_scores_go_on_where_its_ended() -> None:
    run = Scripted(2)
    run.cluster.early.patience = 2
    run.train(0, 1)
    run.say(0, Validated(10, 0.5))
    run.say(0, Validated(20, 0.4))
    run.exit(0)
    run.say(1, Validated(30, 0.45))
    (told,) = run.heard(1, Drain)
    assert told.reason == "stopped early: no better score in 2 evaluations since 0.5 after 10 steps"


def test_the_main_worker_s_script_ends_the_run_for_all_and_another_one_s_does_not() -> None:
    run = Scripted(3)
    run.train(0, 1, 2)
    run.say(1, EndRun("my loss is small"))
    assert not run.heard(0, Drain)
    run.exit(0)
    run.say(1, EndRun("my loss is small"))
    run.say(1, EndRun("another reason"))
    assert {run.heard(rank, Drain)[-1].reason for rank in (1, 2)} == {"ended by the script: my loss is small"}


def test_a_supervisor_that_comes_back_knows_that_the_script_asked_for_the_end() -> None:
    run = Restarted(2)
    run.train(0, 1)
    run.cluster.early.asked = "ended by the script"
    run.keep()
    run.come_back()
    assert run.cluster.early.reason == "ended by the script"
