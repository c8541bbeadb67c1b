"""What is said about differences: never more than the seeds allow."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import record

from taut.comparison.report.findings import apart, contest, findings
from taut.comparison.report.table import summarise, tidy
from taut.comparison.runs.record import RunRecord
from taut.comparison.runs.target import Target, metric_of, parse_target, reached


def told(records: Sequence[RunRecord], target: Target | None = None) -> str:
    return "\n".join(findings(summarise(tidy(records, target)), records, target))


def runs(strategy: str, *scores: float, **more: object) -> list[RunRecord]:
    return [record(strategy, seed=seed, score=score, **more) for seed, score in enumerate(scores)]


def test_a_difference_within_the_spread_is_said_to_be_that() -> None:
    said = told(runs("async", 93.0, 93.1, 93.2) + runs("gossip", 92.6, 92.9, 93.2))
    assert "async 93.1 and gossip 92.9 differ by less than the spread between seeds (0.6)" in said


def test_a_difference_beyond_it_is_a_result() -> None:
    said = told(runs("async", 0.93, 0.931) + runs("gossip", 0.90, 0.901) + runs("sync", 0.8, 0.81))
    assert "Best validation score with 2 workers: async 0.9305, then gossip 0.9005. Last: sync 0.805." in said
    assert "Best validation score with 2 workers: async 0.9305 and" not in said


def test_lower_may_be_better() -> None:
    said = told(runs("async", 0.2, 0.21, better="lower") + runs("gossip", 0.5, 0.51, better="lower"))
    assert "Best validation score with 2 workers: async 0.205, then gossip 0.505" in said


def test_one_seed_knows_no_spread() -> None:
    assert "no spread between seeds is known" in told(runs("async", 0.9) + runs("gossip", 0.8))
    assert "no spread" not in told(runs("async", 0.9, 0.91))


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.5)), min_size=2, max_size=6))
def test_the_sentence_names_exactly_those_within_the_spread(given_rows: list[tuple[float, float]]) -> None:
    rows = [
        {"strategy": f"s{index}", "codec": "c", "topology": "t", "score": mean, "score_spread": spread}
        for index, (mean, spread) in enumerate(given_rows)
    ]
    (said,) = contest(rows, "score", "score", higher=True)
    best = max(rows, key=lambda row: float(str(row["score"])))
    level = [row for row in rows if row is not best and not apart(best, row, "score")]
    assert said.startswith(f"Best score: {best['strategy']} ")
    assert ("less than the spread" in said or "equal" in said) == bool(level)
    before_last = said.partition(" Last: ")[0]
    assert all(f"{row['strategy']} " in before_last for row in level)


def test_without_scores_it_is_the_training_loss() -> None:
    records = [record("async", score=None, loss=0.1), record("sync", score=None, loss=0.3)]
    assert metric_of(records) == "loss"
    assert "Best training loss with 2 workers: async 0.1, then sync 0.3." in told(records)


def test_the_fastest_to_the_target() -> None:
    fast = runs("async", 0.9, 0.9, scores=((1.0, 0.5), (2.0, 0.95)))
    slow = runs("sync", 0.9, 0.9, scores=((1.0, 0.5), (6.0, 0.95)))
    never = runs("gossip", 0.5, 0.9, scores=((1.0, 0.5), (2.0, 0.6)))
    said = told(fast + slow + never, Target(0.94, "score"))
    assert "Fastest to the target (validation score 0.94): async with 2 workers, 2.0 s." in said
    assert "Not reached with every seed: gossip with 2 workers (0 of 2)" in said


def test_a_target_that_nobody_reached() -> None:
    assert "No configuration reached the target" in told(runs("async", 0.5, 0.6), Target(0.9, "score"))


def test_a_score_at_the_end_is_an_upper_bound_of_the_time() -> None:
    found = reached(record(score=0.9), Target(0.9, "score"))
    assert found is not None and found.by_end and found.time_s == 10.0
    assert "measured at its end only" in told(runs("async", 0.9, 0.9), Target(0.9, "score"))
    assert reached(record(score=0.9), Target(0.91, "score")) is None
    assert reached(record(score=0.9, better="lower"), Target(0.91, "score")) is not None


def test_a_loss_is_reached_on_the_way() -> None:
    found = reached(record(), Target(0.5, "loss"))
    assert found is not None and not found.by_end
    assert 5.0 < found.time_s < 9.0  # 1 - 0.09 t is 0.5 at 5.6 s; the mean of the last five moments comes later
    assert reached(record(), Target(0.01, "loss")) is None


@pytest.mark.parametrize(("given", "metric"), [("0.9", "score"), (0.9, "score"), ("loss=0.9", "loss")])
def test_what_a_target_is_of(given: str | float, metric: str) -> None:
    assert parse_target(given, [record()]).metric == metric
    assert parse_target("0.9", [record(score=None)]).metric == "loss"


def test_troubles_are_told() -> None:
    failed = record("sync", state="failed", error="boom")
    assert "1 of 2 runs failed" in told([record("async"), failed])
    assert "No run finished" in told([failed])
    other = record("async", seed=1, versions={"taut": "0.2.0"})
    assert "Not all runs had the same taut: 0.1.0 and 0.2.0" in told([record("async"), other])


def test_scaling_is_against_the_fewest_workers() -> None:
    records = [record("sync", count, samples_per_s=rate) for count, rate in ((2, 100.0), (8, 200.0))]
    rows = summarise(tidy(records))
    assert [(row["speed_up"], row["efficiency"]) for row in rows] == [(2.0, 1.0), (4.0, 0.5)]
    assert "From 2 to 8 workers, sync keeps 50%" in told(records)
