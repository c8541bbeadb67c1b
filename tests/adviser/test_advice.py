"""The rule: the most complete communication within 10% of the fastest that shares every step; and the words' numbers."""

from __future__ import annotations

import runpy
from importlib.resources import files
from pathlib import Path

import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from probes import figures, predictions, probe, scripted

from taut.adviser.candidates import Candidate, Completeness, candidates
from taut.adviser.evidence import measured_on
from taut.adviser.prediction import Cache, Prediction, figures_of, predict, scenario, steps_of
from taut.adviser.ranking import WITHIN, rank
from taut.adviser.reasons import machine_facts, quality, reasons, why, why_not
from taut.adviser.report import AdviceReport
from taut.adviser.verification import Verified
from taut.core.messages import Statistics
from taut.errors import Misuse
from taut.simulator.result import HistoryPoint, Simulated
from taut.simulator.scenario import Scenario
from taut.strategies import REGISTRY
from taut.strategies.compatibility import combine

LISTED = candidates(4)
LEFT_OUT = {"fedavg", "dynamic", "admm", "codistillation"}  # they serve other ends than speed


def named(name: str) -> Candidate:
    return next(one for one in LISTED if one.name == name)


def test_every_strategy_is_a_candidate_or_left_out_for_a_reason() -> None:
    assert {one.resolved.strategy.name for one in LISTED} == set(REGISTRY) - LEFT_OUT


@pytest.mark.parametrize("workers", [2, 3, 4, 8, 16, 100])
def test_candidates_are_in_order_of_completeness_and_all_can_be_run(workers: int) -> None:
    listed = candidates(workers)
    assert [one.completeness for one in listed] == sorted(one.completeness for one in listed)
    assert len({one.name for one in listed}) == len(listed)
    for one in listed:
        assert combine(one.strategy, one.topology or None, one.codec or None, workers=workers) == one.resolved


@given(speeds=st.lists(st.floats(1.0, 1e6), min_size=len(LISTED), max_size=len(LISTED)))
@settings(max_examples=some(200))
def test_the_rule(speeds: list[float]) -> None:
    speed = dict(zip((one.name for one in LISTED), speeds, strict=True))
    alone = speed["independent"] = max(speeds)
    advice = rank(predictions(LISTED, lambda one: speed[one.name]))
    chosen = advice.recommended
    assert chosen.candidate.completeness is not Completeness.NOTHING
    assert all(one.candidate.completeness is not Completeness.NOTHING for one in advice.ranked)
    every_step = [one for one in LISTED if one.completeness <= Completeness.NEIGHBOURS]
    best = max(speed[one.name] for one in every_step)
    if best >= alone / 2:
        assert chosen.candidate.completeness <= Completeness.NEIGHBOURS, "exchanging seldom won by speed alone"
        assert speed[chosen.candidate.name] >= WITHIN * best
        earlier = LISTED[: LISTED.index(chosen.candidate)]
        assert all(speed[one.name] < WITHIN * best for one in earlier), "something more complete was as good"
    else:
        assert advice.seldom_allowed


def test_equal_speed_means_synchronous() -> None:
    advice = rank(predictions(LISTED, lambda one: 1000.0))
    assert advice.recommended.candidate.name == "sync"
    assert [one.candidate.completeness for one in advice.ranked[:3]] == [1, 2, 3]


def test_rare_averaging_is_taken_only_where_nothing_else_comes_near() -> None:
    def speed(one: Candidate, best: float) -> float:
        return 1000.0 if one.completeness >= Completeness.SELDOM else best

    assert rank(predictions(LISTED, lambda one: speed(one, 510.0))).recommended.candidate.name == "sync"
    assert rank(predictions(LISTED, lambda one: speed(one, 490.0))).recommended.candidate.name == "averaging:every=8"


def test_the_same_order_whatever_the_unit() -> None:
    def names(scale: float) -> list[str]:
        found = predictions(LISTED, lambda one: scale * (1 + len(one.name)))
        return [one.candidate.name for one in rank(found).ranked]

    assert names(1.0) == names(1e5)


# ------------------------------------------------------------------------------------------------------- words


def test_the_numbers_of_the_reasons_are_those_of_the_probe_and_the_prediction() -> None:
    sync = Prediction(named("sync"), figures(40.0, wait=0.944, sent=153e6), 0.05)
    text = why_not(sync, probe(4), 4)
    for words in ("11 MB/s", "the dense update is 102 MB", "153 MB sent", "sync would wait 94%", "5% of the speed"):
        assert words in text
    chosen = Prediction(named("async"), figures(800.0, wait=0.0, sent=1.02e6), 0.97)
    for words in ("async sends 1.02 MB", "100 times less", "97% of the speed"):
        assert words in why(chosen, probe(4))
    facts = " ".join(machine_facts(probe(3, steps_s=[0.01, 0.01, 0.04])))
    for words in ("takes 10.1 ms", "worker 2 takes 40.2 ms", "102 MB", "11 MB/s", "500 us", "9.27 s"):
        assert words in facts


def test_reasons_say_why_each_more_complete_class_was_passed_over() -> None:
    found = predictions(LISTED, lambda one: 1000.0 if one.completeness >= Completeness.UNBOUNDED else 300.0)
    advice = rank(found)
    assert advice.recommended.candidate.name == "async"
    text = reasons(advice, probe(4), 4)
    assert sum("would wait" in line for line in text) == 2
    assert any(line.startswith("async sends") for line in text)


def test_quality_is_told_of_each() -> None:
    def text(name: str, late: float = 1.0) -> str:
        return " | ".join(quality(Prediction(named(name), figures(1.0, late=late)), 4, 64))

    assert "256 samples" in text("sync")
    assert "7.0 steps late" in text("async", 7.0) and "smaller learning rate" in text("async", 7.0)
    assert "signs" in text("async") and "last bit" in text("async") and "signs" not in text("async dense")
    assert "momentum" in text("async dense")
    assert "replicas differ" in text("dpsgd ring")
    assert "every 8 steps" in text("averaging:every=8") and "nothing about quality" in text("averaging:every=8")
    assert "every 10 steps" in text("easgd")


# ------------------------------------------------------------------------------------------------- predictions


def test_predictions_are_kept_and_made_anew_for_other_machines(tmp_path: Path) -> None:
    calls: list[str] = []

    def simulate(run: Scenario) -> Simulated:
        calls.append(run.strategy)
        return scripted(run, 500.0)

    listed, path = LISTED[:3], tmp_path / "known.json"
    first, _ = predict(probe(4), listed, 4, simulate=simulate, cache=Cache(path))
    assert len(calls) == 4  # and workers that never talk
    again, _ = predict(probe(4), listed, 4, simulate=simulate, cache=Cache(path))
    assert len(calls) == 4 and again == first
    predict(probe(4, bytes_per_s=1e6), listed, 4, simulate=simulate, cache=Cache(path))
    assert len(calls) == 8
    for number, broken in enumerate((b"{ broken", b'{"\xff": 1}')):
        path.write_bytes(broken)
        predict(probe(4), listed, 4, simulate=simulate, cache=Cache(path))
        assert len(calls) == 12 + 4 * number


def test_what_cannot_be_simulated_is_left_out_and_named() -> None:
    def simulate(run: Scenario) -> Simulated:
        if run.strategy == "sync":
            raise Misuse("sync", "something else")
        return scripted(run, 500.0, error="it fell over" if run.strategy.startswith("ssp") else "")

    listed = [named("sync"), named("ssp:3"), named("async")]
    found, refused = predict(probe(4), listed, 4, simulate=simulate)
    assert [one.candidate.name for one in found] == ["async"]
    assert refused == {"sync": "sync: expected something else", "ssp:3": "it fell over"}


def test_what_would_drown_is_not_simulated() -> None:
    def simulate(run: Scenario) -> Simulated:
        assert run.codec != "dense" or run.strategy in ("sync", "independent"), "102 MB to 3 others after each 0.3 s"
        return scripted(run, 500.0)

    listed = [named(name) for name in ("sync", "ssp:3 dense", "async dense", "async", "gossip dense")]
    found, refused = predict(probe(4), listed, 4, simulate=simulate)
    assert [one.candidate.name for one in found] == ["sync", "async"]
    assert set(refused) == {"ssp:3 dense", "async dense", "gossip dense"}
    assert "27.8 s" in refused["async dense"] and "0.302 s" in refused["async dense"]


def test_efficiency_is_against_as_many_steps_of_workers_that_never_talk() -> None:
    def simulate(run: Scenario) -> Simulated:
        return scripted(run, {30: 100.0, 200: 400.0}[run.steps or 0] / (1.0 if run.strategy == "independent" else 2.0))

    found, _ = predict(probe(4), [named("sync"), named("diloco:every=50")], 4, simulate=simulate)
    assert [one.efficiency for one in found] == pytest.approx([0.5, 0.5])


def test_figures_are_those_of_a_real_runs_record() -> None:
    run = scenario(probe(4), named("async"), 4)
    found = figures_of(scripted(run, 500.0))
    assert found.samples_per_s == pytest.approx(500.0)
    assert found.bytes_per_step == 1000 and found.wait_share == pytest.approx(0.25) and found.staleness == 2.0
    assert found.step_s == pytest.approx(4 * 64 / 500.0)


def test_rare_exchanges_are_simulated_for_several_rounds() -> None:
    for one in LISTED:
        assert one.steps >= 4 * one.every, one.name


# ------------------------------------------------------------------------------------------------------ report


def report(local: bool, workers: int = 4) -> AdviceReport:
    advice = rank(predictions(LISTED, lambda one: 1000.0 if one.name == "async ring" else 300.0))
    verified = [Verified(advice.recommended, 800.0, 900.0)]
    return AdviceReport(probe(4, local=local), advice, {"x": "y"}, verified, workers, Path("train.py"), ["--epochs", "2"])


def test_the_command_is_the_one_to_type() -> None:
    here = report(True)
    assert here.command(here.advice.recommended) == (
        "taut run --workers 4 --strategy async --topology ring train.py --epochs 2"
    )
    there = report(False)
    assert there.command(there.advice.recommended).startswith("taut supervisor --workers 4 --strategy async")


def test_the_record_holds_prediction_against_reality_and_warns() -> None:
    record = report(True, workers=8).record(top=3)
    assert len(record["top"]) == 3 and record["recommended"] == "async ring"
    assert record["verified"][0]["error"] == pytest.approx(0.25)
    assert any("share its cores" in line for line in record["warnings"])
    assert any(line == "x was left out: y" for line in record["warnings"])


# ------------------------------------------------------------------------------- what predictions are compared by


def test_short_steps_are_simulated_for_longer() -> None:
    assert steps_of(probe(4, steps_s=[0.002] * 4), named("async")) > 400
    assert steps_of(probe(4, steps_s=[0.3] * 4), named("async")) == named("async").steps
    assert steps_of(probe(4, steps_s=[0.002] * 4), named("sync")) == named("sync").steps


def test_pace_and_bytes_are_of_the_second_half() -> None:
    run = scenario(probe(2), named("async"), 2, steps=100)
    late = [(rank, 50 + 0.1 * step, step, 10_000 + 10 * step) for step in (50, 75, 100) for rank in (0, 1)]
    points = [HistoryPoint(0.5 * 20, rank, 20, 20 * 64, 10_000) for rank in (0, 1)]
    points += [HistoryPoint(at_s, rank, steps, steps * 64, sent) for rank, at_s, steps, sent in late]
    row = Statistics(100, 6400, bytes_sent=11_000, wall_s=62.0)
    found = figures_of(Simulated(run, 62.0, {0: row, 1: row}, history=tuple(points)))
    assert found.bytes_per_step == pytest.approx(10.0) and found.step_s == pytest.approx(0.1)
    assert found.samples_per_s == pytest.approx(12_800 / (100 * 0.1 + 2.0))  # the last two seconds are of the end


def test_what_was_measured_is_what_the_benchmarks_results_say() -> None:
    made = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "evidence.py"))
    assert files("taut.adviser").joinpath("evidence.json").read_text("utf-8") == made["text"]()


def test_the_advice_says_on_which_tasks_it_was_measured() -> None:
    top = report(True).record(top=3)["top"]
    assert all("was measured on" in each["quality"][-1] for each in top)
    assert "29.76, sync with dense 97.12" in measured_on("async", "dense")
    assert "with ssp:0, threshold" in measured_on("ssp:3", "threshold")
