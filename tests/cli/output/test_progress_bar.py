"""The progress of a run in words: epoch, time left, and the speed of the last seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from taut.cli.output.progress_bar import RecentRates, here_text, progress_text, share_done
from taut.core.messages import Statistics
from taut.supervisor.view import ClusterView, WorkerRow


def view(wall_s: float, *made: int, state: str = "training", **more: int) -> ClusterView:
    """A run whose workers have made so many samples in ``wall_s``."""
    rows = tuple(
        WorkerRow(rank, "host", rank, "training", Statistics(steps=1, samples=samples, wall_s=wall_s), 0.0, "")
        for rank, samples in enumerate(made)
    )
    return replace(ClusterView("r", state, 0, rows, 0.1, 2, 5, 10, (), wall_s, wall_s), wanted=4, **more)  # type: ignore[arg-type]


def test_samples_per_second_are_of_the_last_seconds() -> None:
    rates = RecentRates()
    for second in range(21):  # 100 a second for ten seconds, then 1,000
        rates.update(view(float(second), 100 * second + 900 * max(0, second - 10), 0))
    assert rates.of(0) == pytest.approx(1000)
    assert rates.of(1) == 0 and rates.together() == pytest.approx(1000)


def test_a_worker_that_says_nothing_any_more_slows_down() -> None:
    rates = RecentRates()
    for second in range(6):
        rates.update(view(float(second), 100 * second))
    before, silent = rates.of(0), view(5.0, 500)
    rates.update(replace(silent, wall_s=60.0))
    assert rates.of(0) < before / 5


def test_before_the_second_word_of_a_worker_nothing_is_made_up() -> None:
    rates = RecentRates()
    assert rates.of(0) == rates.together() == 0.0
    rates.update(view(1.0))
    assert rates.together() == 0.0


def test_the_line_says_which_epoch_of_how_many_and_the_time_left() -> None:
    rates = RecentRates()
    rates.update(view(0.0, 0))
    now = view(5.0, 500, epochs=10, samples_trained=25, samples_left=75)
    rates.update(now)
    assert "epoch 3 of 10, 25%, 1 s left" in progress_text(now, rates)
    assert "100 samples/s" in progress_text(now, rates)
    beginning = replace(now, train_s=0.5)
    assert "25%" in progress_text(beginning, rates) and "left" not in progress_text(beginning, rates)
    unknown = view(5.0, 500)
    assert "epoch 3, 50%" in progress_text(unknown, rates) and "left" not in progress_text(unknown, rates)
    draining = view(5.0, 500, state="draining", epochs=10, samples_trained=25, samples_left=75)
    assert "left" not in progress_text(draining, rates), "it ends early"


def test_a_run_of_a_loop_without_batches_has_no_share() -> None:
    assert share_done(replace(view(1.0, 1), samples_done=0, samples_total=0)) is None


@pytest.mark.parametrize(("wanted", "states", "text"), [
    (4, [], "0 of 4 here"),
    (4, ["ready", "joining"], "2 of 4 here"),
    (2, ["training", "training", "training"], "3 of 3 here"),
    (4, ["training", "training", "training", "gone"], "3 of 4 here"),
])  # fmt: skip
def test_how_many_are_here(wanted: int, states: list[str], text: str) -> None:
    rows = tuple(WorkerRow(rank, "h", 1, state, Statistics(), 0.0, "") for rank, state in enumerate(states))  # type: ignore[arg-type]
    assert here_text(replace(view(0.1), workers=rows, wanted=wanted)) == text
