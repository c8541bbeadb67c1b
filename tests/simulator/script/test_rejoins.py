"""Workers that are silent for so long that they are given up, and come back: whole runs in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.simulator.result import Simulated
from taut.strategies import REGISTRY
from taut.strategies.compatibility import combine
from taut.testing import FaultPlan, run_with_faults

JOB = Path(__file__).parents[1] / "tiny_job.py"
SUPERVISOR = -1
RULES = {
    "sum": {"async", "ssp", "relay"},
    "mix": {
        "independent", "averaging", "dpsgd", "codistillation", "relaysgd", "choco", "gossipgrad", "gossip", "sgp",
        "adpsgd", "noloco",
    },
    "take": {"admm", "diloco", "dynamic", "easgd", "fedavg", "server", "sparseloco", "sync"},
}  # fmt: skip


def run(plan: FaultPlan, strategy: str, **scenario: object) -> Simulated:
    args = ("--samples", "192", "--epochs", "4")
    return run_with_faults(JOB, plan, strategy=strategy, args=args, step_s=1.0, limit_s=400.0, **scenario)  # type: ignore[arg-type]


def members(found: Simulated) -> list[int]:
    """The processes that are in the run at its end, by the number of each."""
    assert found.outcome is not None
    return sorted(row.pid for row in found.outcome.workers.values() if row.state != "gone")


def test_every_strategy_says_what_becomes_of_the_work() -> None:
    assert {name for names in RULES.values() for name in names} == set(REGISTRY)
    for rule, names in RULES.items():
        assert {combine(name).returns for name in names} == {rule}
    assert combine("sync for 5 steps, then async").returns == "sum", "as the phase that it comes back in"
    assert combine("sync:schedule=gloo").returns == combine("async for 5 steps, then sync:schedule=gloo").returns == "no"


@pytest.mark.parametrize(
    ("strategy", "seed"),
    [
        ("async", 0),
        pytest.param("async", 1, marks=pytest.mark.long),
        ("ssp:2", 2),
        ("relay", 3),
        ("gossip", 4),
        ("averaging", 5),
        ("diloco:every=5", 6),
        ("sync", 7),
    ],
)
def test_a_half_that_was_cut_off_for_long_comes_back(strategy: str, seed: int) -> None:
    """Two of four, without the supervisor: they are given up, go on as far as they can, and are back when it heals."""
    plan = FaultPlan(seed).partition({0, 1, SUPERVISOR}, {2, 3}).between(3.0, 18.0)
    found = run(plan, strategy, topology="ring" if strategy == "relay" else "")
    outcome = found.outcome
    assert outcome is not None and outcome.exit_code == 0
    assert sorted(found.gone) == [2, 3] and members(found) == [1, 2, 3, 4]
    assert not outcome.failures
    assert found.identical and outcome.exact
    assert outcome.samples_undone == 0 and outcome.samples_again > 0


@pytest.mark.parametrize("strategy", ["async", "gossip", "server", "sync", "sync:backup=1"])
def test_one_that_stood_still_for_a_minute_comes_back(strategy: str) -> None:
    plan = FaultPlan(1).pause(2, for_s=60).at_step(3).slow(0, times=4).slow(1, times=4).slow(3, times=4)
    found = run(plan, strategy)
    assert found.error == "" and list(found.gone) == [2] and members(found) == [1, 2, 3, 4]
    assert found.workers[4].steps > 0, "it trains again"
    assert found.outcome is not None and found.outcome.samples_undone == 0 and found.identical


@pytest.mark.parametrize("at_s", [0.0, 0.0505])
def test_one_that_stands_still_while_it_joins_begins_anew(at_s: float) -> None:
    """Before it is admitted, and when it waits for the start."""
    plan = FaultPlan(1).pause(2, for_s=20).at(at_s).slow(0, times=3).slow(1, times=3).slow(3, times=3)
    found = run(plan, "async")
    assert found.error == "" and members(found) == [1, 2, 3, 4] and found.identical
    assert found.outcome is not None and found.outcome.samples_undone == 0


def test_lockstep_waits_for_a_majority_and_loses_nothing() -> None:
    plan = FaultPlan(1).partition({0, SUPERVISOR}, {1, 2}, {3}).between(3.0, 30.0)
    found = run(plan, "sync")
    assert found.error == "" and not found.gone and found.identical
    assert found.outcome is not None and found.outcome.samples_undone == found.outcome.samples_again == 0
    assert not [point for point in found.history if 8.0 < point.time_s < 30.0], "nobody went on alone"


def test_the_same_returns_every_time() -> None:
    plan = FaultPlan(1).pause(2, for_s=20).at(3.0)
    first, again = run(plan, "async"), run(plan, "async")
    assert first.history == again.history and first.outcome == again.outcome
