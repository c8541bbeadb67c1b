"""Codecs in the advice: those that cannot win are not simulated, and whether compression pays is said."""

from __future__ import annotations

import pytest
from probes import predictions, probe, scripted

from taut.adviser.candidates import Candidate, candidates
from taut.adviser.machines import costs_of
from taut.adviser.prediction import outdone, predict, scenario
from taut.adviser.ranking import rank
from taut.adviser.reasons import compression
from taut.simulator.models.costs import CodecCost, Costs
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario

LISTED = candidates(4)


def named(name: str) -> Candidate:
    return next(one for one in LISTED if one.name == name)


@pytest.mark.parametrize("strategy", ["ssp:3", "async", "gossip"])
def test_codecs_that_could_pay_are_candidates(strategy: str) -> None:
    codecs = {one.resolved.codec for one in LISTED if one.strategy == strategy and not one.topology}
    assert codecs == {"tether", "threshold", "int8", "topk", "dense"}


def test_what_the_probe_did_not_see_costs_what_was_measured_here() -> None:
    mine = Costs({"int8": CodecCost(7e-9, 1e-9, 8.0)})
    assert costs_of(probe(3), mine).codec("int8").encode_s_per_element == 7e-9
    assert costs_of(probe(3), mine).codec("tether").bits_per_element == 0.4, "the probe's"
    assert scenario(probe(4), named("async int8"), 4, costs=mine).costs.codec("int8").encode_s_per_element == 7e-9


def test_a_codec_that_is_larger_and_slower_is_not_simulated_and_one_that_may_win_is() -> None:
    simulated: list[str] = []

    def simulate(run: Scenario) -> Simulated:
        simulated.append(run.codec)
        return scripted(run, 500.0)

    listed = [named(name) for name in ("async", "async threshold", "async int8", "async topk", "async dense")]
    costs = Costs({"int8": CodecCost(1e-9, 1e-9, 8.0), "topk": CodecCost(1e-10, 1e-10, 0.5)})
    _, refused = predict(probe(4, bytes_per_s=1e9), listed, 4, simulate=simulate, costs=costs)
    assert "int8" not in simulated and "threshold" not in simulated
    assert "topk" in simulated, "it says more than tether, but takes less"
    assert "dense" in simulated, "others are held against it"
    assert (
        refused["async int8"]
        == "int8 says no less than tether (8 bits per parameter against 0.4), and takes no less time"
    )


def test_a_codec_is_held_against_those_of_its_own_strategy_only() -> None:
    costs = Costs({"int8": CodecCost(1e-9, 1e-9, 8.0)})
    assert outdone(probe(4), named("async int8"), [named("ssp:3")], costs) == ""
    assert outdone(probe(4), named("async int8"), [named("ssp:3"), named("async")], costs)


def advised(speeds: dict[str, float], otherwise: float = 100.0) -> str:
    advice = rank(predictions(LISTED, lambda one: speeds.get(one.name, otherwise)))
    return " ".join(compression(advice))


def test_whether_compression_pays_is_said() -> None:
    assert "compression does not pay here" in advised({}, otherwise=1000.0), "sync is as fast as anything"
    told = advised({"async": 1000.0, "async dense": 400.0})
    assert "compression pays: with dense updates (async dense) it would be 40%" in told
    told = advised({"async": 950.0, "async dense": 1000.0})
    assert "compression does not pay here: async dense reaches 100%" in told
    told = advised({"sync": 950.0, "async": 1000.0})
    assert "would gain 5% (async)" in told
