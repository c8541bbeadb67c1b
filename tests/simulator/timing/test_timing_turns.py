"""Turns where only time is simulated go as in the runtime: nobody stands still, leaves early or waits for ever."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from taut.simulator.faults import Departure, Fail, KillSupervisor
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.timing.simulation import simulate_timing
from taut.simulator.trace import Trace
from taut.strategies.registry import REGISTRY
from taut.testing import FaultPlan, run_with_faults

JOB = Path(__file__).parents[1] / "own_data_job.py"
STEP_S, DEATH_S, DETECT_S, STEPS = 0.6, 6.1, 12.0, 40
PAUSE_S = 1.5  # a step, another's step, and the quarter of a second that it takes to see that a round is held up
TRAIN_ON = [
    "dpsgd on ring",
    "choco on ring",
    "sgp:overlap=1 on exponential",
    "relaysgd on ring",
    "gossipgrad",
    "averaging:every=3",
    "diloco:every=3",
    "diloco:every=4,fragments=2,overlap=1",
    "diloco:every=3,delayed=true",
    "diloco:every=3,eager=true",
    "sparseloco:every=3",
    "noloco:every=3",
    "admm:every=3",
    "easgd:every=3",
]


def longest_pause(trace: Trace, without: int) -> float:
    """Return the longest time between the ends of two steps of one worker, of all but one."""
    ends: dict[int, list[float]] = {}
    for line in trace.lines():
        if '"name":"compute"' in line:
            event = json.loads(line.rstrip(","))
            ends.setdefault(event["tid"] - 1, []).append((event["ts"] + event["dur"]) / 1e6)
    return max(later - earlier for rank, times in ends.items() if rank != without for earlier, later in pairwise(times))


@pytest.mark.parametrize("strategy", TRAIN_ON)
@pytest.mark.parametrize("workers", [4, 12])
def test_the_others_train_on_after_a_death_until_it_is_noticed(strategy: str, workers: int) -> None:
    name, _, topology = strategy.partition(" on ")
    trace = Trace({})
    scenario = Scenario(
        workers, name, topology, steps=STEPS, parameters=1000, speeds=Speeds(STEP_S), faults=(Fail(1, DEATH_S),)
    )
    done = simulate_timing(scenario, trace=trace, detect_s=DETECT_S)
    assert not done.error and list(done.gone) == [1]
    assert all(each.steps == STEPS for rank, each in done.workers.items() if rank != 1)
    assert longest_pause(trace, without=1) < PAUSE_S
    assert any("drifted=" in each.counted for each in done.workers.values()), "it is in the figures"


@pytest.mark.parametrize("strategy", ["dpsgd on ring", "averaging:every=3", "diloco:every=3", "easgd:every=3"])
def test_a_death_holds_nobody_up_longer_than_where_workers_train(strategy: str) -> None:
    name, _, topology = strategy.partition(" on ")
    trained, timed = Trace({}), Trace({})
    plan = FaultPlan(1).kill(1).at(DEATH_S)
    job = {"args": ("--steps", "20"), "step_s": STEP_S, "trace": trained}
    run_with_faults(JOB, plan, strategy=name, topology=topology, **job)  # type: ignore[arg-type]
    scenario = Scenario(4, name, topology, steps=20, parameters=1000, speeds=Speeds(STEP_S), faults=(Fail(1, DEATH_S),))
    simulate_timing(scenario, trace=timed, detect_s=DETECT_S)
    assert longest_pause(timed, without=1) == pytest.approx(longest_pause(trained, without=1), abs=0.5)


# A worker that leaves stays for the round that its steps belong to: by default that takes many steps.
OFTEN = {name: f"{name}:every=4" for name in ("diloco", "averaging", "easgd", "admm", "sparseloco", "noloco")}


def leave(name: str, rank: int, workers: int = 4) -> Simulated:
    links, speeds = Links(Link(1e8, 1e-3)), Speeds(0.01, "lognormal:0.3")
    faults = (Departure(rank, at_s=0.105),)
    given = {"steps": 30, "parameters": 20_000, "links": links, "speeds": speeds, "faults": faults}
    return simulate_timing(Scenario(workers, OFTEN.get(name, name), **given))  # type: ignore[arg-type]


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("workers", [2, 4, 11])
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_worker_that_leaves_hands_over_and_goes_and_the_others_go_on(name: str, workers: int, rank: int) -> None:
    if rank >= workers:
        return
    done = leave(name, rank, workers)
    assert not done.error and not done.missed and done.gone == {rank: "left"}
    assert all(each.steps == 30 for other, each in done.workers.items() if other != rank)
    left = done.workers[rank]
    assert 0 < left.steps < 30
    assert left.wall_s < 0.105 + 10 * 0.01 + 0.1, "it is gone in a moment"


def without_supervisor(strategy: str, workers: int) -> float:
    """Return when the last of 60 steps of a second was made. The supervisor is away for 100 s of them; a worker dies."""
    faults = (KillSupervisor(100.0, at_s=5.0), Fail(1, 10.5))
    scenario = Scenario(workers, strategy, steps=60, parameters=1000, speeds=Speeds(1.0), faults=faults)
    done = simulate_timing(scenario)
    assert not done.error and not done.missed
    assert all(each.steps == 60 for rank, each in done.workers.items() if rank != 1)
    return max(point.time_s for point in done.history)


@pytest.mark.parametrize("workers", [3, 4, 11])
def test_most_workers_go_on_without_the_dead_while_the_supervisor_is_away(workers: int) -> None:
    assert without_supervisor("sync", workers) < 60.0 + 20.0


@pytest.mark.parametrize("strategy", ["sync", "ssp:3"])
def test_others_wait_until_the_supervisor_is_back(strategy: str) -> None:
    """Two workers of which one is dead are no majority, and a stream has no elections."""
    assert without_supervisor(strategy, 2) > 105.0
    assert without_supervisor("async", 2) < 61.0
