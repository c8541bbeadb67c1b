"""Two halves that cannot hear each other both train on, and are one run again afterwards: whole runs in virtual time."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from taut.simulator.trace import Trace
from taut.testing import FaultPlan, run_with_faults

JOB = Path(__file__).parents[1] / "own_data_job.py"
SUPERVISOR = -1
STEP_S = 0.6
CUT_S, HEALED_S = 6.0, 24.0
STEPS = 50  # of each worker: 30 s of them
PAUSE_S = 1.5  # a step, another's step, and the quarter of a second that it takes to see that a round is held up


def steps_of(trace: Trace) -> dict[int, list[float]]:
    """When each worker's steps were computed."""
    steps: dict[int, list[float]] = {}
    for line in trace.lines():
        if '"name":"compute"' in line:
            event = json.loads(line.rstrip(","))
            steps.setdefault(event["tid"] - 1, []).append((event["ts"] + event["dur"]) / 1e6)
    return steps


@pytest.mark.parametrize(
    "strategy",
    [
        "dpsgd on ring",
        "choco on ring",
        "sgp:overlap=1 on exponential",
        "relaysgd on ring",
        "gossipgrad",
        "averaging:every=3",
        "diloco:every=3",
        "diloco:every=4,fragments=2,overlap=1",
        "diloco:every=3,delayed=true",
        "dynamic:threshold=0.01,every=3",
        "admm:every=3",
        "easgd:every=3",
    ],
)
def test_both_halves_of_a_partition_train_on(strategy: str) -> None:
    """Two of four are cut off with nobody to tell them who is gone, and the other two wait to be told. All make their
    steps; when it heals, those who were given up are back, and all end with the same model."""
    name, _, topology = strategy.partition(" on ")
    trace = Trace({})
    plan = FaultPlan(1).partition({0, 1, SUPERVISOR}, {2, 3}).between(CUT_S, HEALED_S)
    found = run_with_faults(
        JOB, plan, strategy=name, topology=topology, args=("--steps", str(STEPS)), step_s=STEP_S, trace=trace
    )
    assert found.error == "" and sorted(found.gone) == [2, 3]
    assert found.outcome is not None and found.identical and found.outcome.exact
    assert sorted(row.pid for row in found.outcome.workers.values() if row.state != "gone") == [1, 2, 3, 4]
    for rank, times in steps_of(trace).items():
        assert len(times) == STEPS
        meanwhile = [time_s for time_s in times if CUT_S - 1.0 < time_s < HEALED_S]
        pauses = [later - earlier for earlier, later in pairwise(meanwhile)]
        assert max(pauses) < PAUSE_S, f"worker {rank} stood still for {max(pauses):.2f} s"
    assert any("drifted=" in row.counted for row in found.workers.values()), "it is in the figures"


def test_who_is_not_chosen_sees_that_a_round_is_late_within_another_one() -> None:
    """In `fedavg` it waits for whole rounds as a rule; that one of them takes much longer than those is seen soon."""
    trace, round_s, cut_s = Trace({}), 4 * STEP_S, 2 * CUT_S
    plan = FaultPlan(1).partition({0, 1, SUPERVISOR}, {2, 3}).between(cut_s, HEALED_S)
    found = run_with_faults(JOB, plan, strategy="fedavg:steps=4", args=("--steps", "36"), step_s=STEP_S, trace=trace)
    assert found.error == "" and sorted(found.gone) == [2, 3] and found.identical
    for rank, times in steps_of(trace).items():
        meanwhile = [time_s for time_s in times if cut_s - 1.0 < time_s < HEALED_S]
        pauses = [later - earlier for earlier, later in pairwise(meanwhile)]
        assert max(pauses) < 2.2 * round_s, f"worker {rank} stood still for {max(pauses):.2f} s"


@pytest.mark.parametrize("strategy", ["dpsgd on ring", "averaging:every=2"])
def test_who_runs_out_of_data_while_its_round_is_held_up_trains_on_when_it_has_some(strategy: str) -> None:
    """One of four stands still; the others come to the end of their pass before that is noticed."""
    name, _, topology = strategy.partition(" on ")
    trace = Trace({})
    plan = FaultPlan(1).pause(1, for_s=100).at(4.0)
    found = run_with_faults(
        JOB, plan, strategy=name, topology=topology, args=("--passes", "5"), step_s=STEP_S, trace=trace
    )
    assert found.error == "" and list(found.gone) == [1] and found.identical
    for rank, times in steps_of(trace).items():
        pauses = [later - earlier for earlier, later in pairwise(times)]
        # Passes end at different times, and so rounds begin up to half a step apart: such waits are usual then.
        assert rank == 1 or max(pauses) < PAUSE_S + STEP_S / 2, f"worker {rank} stood still for {max(pauses):.2f} s"
