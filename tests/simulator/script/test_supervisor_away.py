"""The supervisor dies and stays away for long: training goes on, and every sample is trained on exactly once."""

from __future__ import annotations

import pytest

from taut.core.messages import SUPERVISOR
from taut.testing import FaultPlan, run_with_faults
from taut.testing.soak.cases import JOB
from taut.testing.soak.laws import TALLY

SAMPLES, EPOCHS, WORKERS, STEP_S = 160, 4, 4, 0.5  # batches of 4: 20 s of training


@pytest.mark.parametrize(
    ("strategy", "at_s", "away_s", "moved"),
    [("async", 3.1, 20.0, False), ("async", 8.25, 20.0, True), ("gossip", 3.4, 20.0, True), ("sync", 3.1, 8.0, False)],
)
def test_training_goes_on_without_it_and_nothing_is_trained_on_twice(
    strategy: str, at_s: float, away_s: float, moved: bool
) -> None:
    plan = FaultPlan(seed=1).kill_supervisor(back_after_s=away_s, moved=moved).at(at_s)
    TALLY.clear()
    found = run_with_faults(
        JOB,
        plan,
        workers=WORKERS,
        strategy=strategy,
        args=("--samples", str(SAMPLES), "--epochs", str(EPOCHS)),
        step_s=STEP_S,
    )
    outcome = found.outcome
    assert outcome is not None and outcome.exit_code == 0
    assert (outcome.samples_undone, outcome.samples_again) == (0, 0)
    assert [TALLY.ended[sample] for sample in range(SAMPLES)] == [EPOCHS] * SAMPLES
    alone_s = SAMPLES * EPOCHS / 4 / WORKERS * STEP_S
    stood_still_s = away_s + alone_s  # the end of a run whose workers wait for it
    assert outcome.wall_s < stood_still_s - 0.5 * min(away_s, alone_s - at_s), "they stood still while it was away"


@pytest.mark.parametrize(
    ("strategy", "cut"),
    [("sync", False), ("sync", True), ("sync:schedule=tree", False), ("sync:backup=1", True)],
)
def test_most_of_the_workers_go_on_without_it_and_without_one_of_them(strategy: str, cut: bool) -> None:
    """It dies, and a worker dies; or the two are parted from the others, who are the majority."""
    until_s = 34.0
    if cut:
        plan = FaultPlan(seed=1).partition({0, 1, 2}, {3, SUPERVISOR}).between(6.0, until_s)
    else:
        plan = FaultPlan(seed=1).kill_supervisor(back_after_s=until_s - 6.0).at(6.0).kill(3).at(7.0)
    TALLY.clear()
    found = run_with_faults(
        JOB,
        plan,
        workers=WORKERS,
        strategy=strategy,
        args=("--samples", "240", "--epochs", "4", "--momentum", "0.9"),
        step_s=STEP_S,
    )
    outcome = found.outcome
    assert outcome is not None and outcome.exit_code == 0 and found.error == ""
    assert outcome.identical and outcome.samples_undone == 0
    assert all(TALLY.ended[sample] >= EPOCHS for sample in range(240))
    assert list(found.gone) == [3] and found.gone[3].startswith("most workers could not reach it")
    assert len(found.workers) == (5 if cut else 4), "who was parted is back, under another rank"
    # steps until it was back, in half seconds; nobody waited for more than the two silences took to notice
    made = max(point.steps for point in found.history if point.time_s < until_s)
    assert made > (until_s - 18.0) / STEP_S


def test_two_halves_of_an_even_number_both_wait() -> None:
    plan = FaultPlan(seed=1).kill_supervisor(back_after_s=28.0).at(6.0).partition({0, 1}, {2, 3}).between(6.0, 30.0)
    found = run_with_faults(
        JOB,
        plan,
        workers=WORKERS,
        strategy="sync",
        args=("--samples", "160", "--epochs", "2", "--momentum", "0.9"),
        step_s=STEP_S,
    )
    assert found.outcome is not None and found.outcome.exit_code == 0 and found.outcome.identical and not found.gone
    assert max(point.steps for point in found.history if point.time_s < 30.0) < 7.0 / STEP_S


@pytest.mark.parametrize(
    "words", [("--samples", "320", "--epochs", "1"), ("--samples", "80", "--epochs", "4", "--one-by-one")]
)
def test_a_lone_worker_goes_on_though_the_supervisor_is_gone(words: tuple[str, ...]) -> None:
    plan = FaultPlan(seed=1).kill_supervisor(back_after_s=60.0).at(6.0)
    TALLY.clear()
    found = run_with_faults(JOB, plan, workers=1, args=words, step_s=0.5)
    assert found.outcome is not None and (found.outcome.samples_undone, found.outcome.samples_again) == (0, 0)
    assert set(TALLY.ended.values()) == {int(words[3])} and len(TALLY.ended) == int(words[1])
    assert found.outcome.wall_s < 6.0 + 60.0 + 10.0  # of 40 s of training


@pytest.mark.parametrize(
    ("strategy", "samples", "epochs", "at_s", "away_s", "moved"),
    [
        ("async", 64, 8, 3.1, 8.0, False),  # passes of 2 s: several of them while it is away
        ("gossip", 160, 4, 3.4, 8.0, True),
        ("sync", 160, 4, 3.1, 8.0, False),
    ],
)
def test_nobody_stands_still_at_the_end_of_a_pass_where_passes_are_asked_for_one_by_one(
    strategy: str, samples: int, epochs: int, at_s: float, away_s: float, moved: bool
) -> None:
    """A script that does not say what follows goes through its passes all the same, but for the moment in which each
    worker finds out that nobody answers; what was left of them is trained on when the supervisor is back."""
    plan = FaultPlan(seed=1).kill_supervisor(back_after_s=away_s, moved=moved).at(at_s)
    TALLY.clear()
    found = run_with_faults(
        JOB,
        plan,
        workers=WORKERS,
        strategy=strategy,
        args=("--samples", str(samples), "--epochs", str(epochs), "--one-by-one"),
        step_s=STEP_S,
    )
    outcome = found.outcome
    assert outcome is not None and outcome.exit_code == 0
    assert (outcome.samples_undone, outcome.samples_again) == (0, 0)
    assert [TALLY.ended[sample] for sample in range(samples)] == [epochs] * samples
    assert outcome.wall_s < samples * epochs / 4 / WORKERS * STEP_S + 3 * STEP_S


def test_what_nobody_could_deal_before_the_last_of_passes_one_by_one_was_over_is_counted() -> None:
    """Nobody knew that it was the last one."""
    plan = FaultPlan(seed=1).kill_supervisor(back_after_s=30.0).at(7.1)
    TALLY.clear()
    words = ("--samples", str(SAMPLES), "--epochs", "3", "--one-by-one")
    outcome = run_with_faults(JOB, plan, workers=WORKERS, args=words, step_s=STEP_S).outcome
    assert outcome is not None and outcome.exit_code == 0 and outcome.samples_again == 0
    assert max(TALLY.ended.values()) <= 3
    assert 0 < outcome.samples_undone == SAMPLES * 3 - sum(TALLY.ended.values()) <= SAMPLES // 2
