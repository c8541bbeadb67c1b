"""FaultPlan: written as it is read, refused where it cannot be, and what it says happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.messages import SUPERVISOR
from taut.errors import Misuse, RunFailed
from taut.simulator.faults import Fail, KillSupervisor, Loss, Partition, Reorder, Repeat, Slow
from taut.simulator.models.links import Link, Links
from taut.simulator.models.network import Network
from taut.simulator.models.rng import Rng
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script.fibers import NS
from taut.simulator.script.network_faults import NetworkFaults
from taut.simulator.timing.simulation import simulate_timing
from taut.testing import FaultPlan, run_with_faults
from taut.testing.faults.random_plans import random_plan

JOB = Path(__file__).with_name("tiny_job.py")


def run(plan: FaultPlan, **given: Any) -> Simulated:
    settings: dict[str, Any] = {"args": ("--samples", "128", "--epochs", "2"), "step_s": 0.05, "limit_s": 120.0}
    return run_with_faults(JOB, plan, **(settings | given))


# ------------------------------------------------------------------------------------------------------------ words


def test_it_is_written_as_it_is_read() -> None:
    plan = (
        FaultPlan(seed=7)
        .kill(2)
        .at_step(30)
        .partition({0, 1}, {2, 3})
        .between(5, 9)
        .slow(1, times=10)
        .drop(0, 1, p=0.05)
        .pause(1, for_s=3)
        .at(2.0)
        .kill_supervisor(back_after_s=2)
        .at(1.5)
    )
    assert str(plan) == (
        "FaultPlan(seed=7).kill(2).at_step(30).partition({0, 1}, {2, 3}).between(5, 9).slow(1, times=10)"
        ".drop(0, 1, p=0.05).pause(1, for_s=3).at(2).kill_supervisor(back_after_s=2).at(1.5)"
    )
    assert plan.faults[:3] == (Fail(2, 0.0, 30), Partition(((0, 1), (2, 3)), 5, 9), Slow(1, 10))
    assert len(plan.describe().splitlines()) == len(plan.faults)
    assert FaultPlan().describe() == "nothing goes wrong"


def test_a_plan_is_a_value() -> None:
    plan = FaultPlan(seed=1)
    plan.kill(0).at(1.0)
    assert plan == FaultPlan(seed=1) and not plan.faults


@given(st.integers(0, 2**40), st.integers(3, 12), st.floats(0.5, 100.0))
def test_random_plans_read_back(seed: int, workers: int, duration_s: float) -> None:
    plan = random_plan(seed, workers, duration_s)
    assert FaultPlan.parse(str(plan)) == plan and plan == FaultPlan.random(seed, workers, duration_s)
    plan.check(workers)
    record = Scenario(workers=workers, faults=plan.faults).to_record()
    assert Scenario.from_record(record).faults == plan.faults


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FaultPlan().kill(4).check(4), "kill\\(4\\).at\\(0\\) with 4 workers: expected a worker from 0 to 3"),
        (lambda: FaultPlan().kill(-1), "rank from 0 up"),
        (lambda: FaultPlan().partition({0, 1}, {1, 2}), "do not overlap: 1 is in two"),
        (lambda: FaultPlan().partition({0, 1}), "two groups or more"),
        (lambda: FaultPlan().drop(0, 1, p=5), "p=5: expected a probability from 0 to 1; 5% is p=0.05"),
        (lambda: FaultPlan().cut(1, 1), "two different workers"),
        (lambda: FaultPlan().slow(1, times=0), "times slower"),
        (lambda: FaultPlan().throttle(0, 1, share=0), "share above 0"),
        (lambda: FaultPlan().duplicate(0, -1, p=0.1), "its links keep order"),
        (lambda: FaultPlan().cut(0, 1).between(5, 5), "an end after the beginning"),
        (lambda: FaultPlan().pause(0, for_s=-1), "seconds from 0 up"),
        (lambda: FaultPlan().kill(0).at_step(0), "a step from 1 up"),
        (lambda: FaultPlan().kill(0).between(1, 2), "use .at\\(2\\) or .at_step\\(30\\)"),
        (lambda: FaultPlan().slow(0, times=2).at_step(3), "use .between\\(2, 4\\)"),
        (lambda: FaultPlan().at(3), "a fault first"),
        (lambda: FaultPlan().join(0), "at least 1"),
        (lambda: FaultPlan(seed=-1), "from 0 up"),
        (lambda: FaultPlan.parse("FaultPlan().kil(2)"), "did you mean 'kill'"),
        (lambda: FaultPlan.parse("FaultPlan().kill()"), "missing a required argument"),
        (lambda: FaultPlan.parse("FaultPlan().parse('x')"), "one of"),
        (lambda: FaultPlan.parse("__import__('os').system('true')"), "FaultPlan\\(...\\) and calls of it"),
        (lambda: FaultPlan.parse("FaultPlan().kill(open('x'))"), "plain values"),
        (lambda: FaultPlan.parse("kill 2"), "plain values"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told(make: Any, said: str) -> None:
    with pytest.raises(Misuse, match=said):
        make()


def test_timing_alone_refuses_what_it_cannot_do() -> None:
    for plan, said in (
        (FaultPlan().cut(0, 1), "loss where only time"),
        (FaultPlan().kill(0).at_step(3), "fail at a step"),
    ):
        with pytest.raises(Misuse, match=said):
            simulate_timing(Scenario(workers=4, strategy="dpsgd", faults=plan.faults, steps=4))


# --------------------------------------------------------------------------------------------------------- the network


def test_a_partition_puts_the_others_with_worker_0() -> None:
    apart = Partition(((2, 3), (0, 1)))
    assert apart.parts(SUPERVISOR, 2) and not apart.parts(SUPERVISOR, 0) and not apart.parts(7, 1)
    assert not Partition(((2, SUPERVISOR), (0, 1))).parts(SUPERVISOR, 2)
    assert not Partition(((2,), (3,))).parts(0, 2), "worker 0 is in no group: with the first"


def test_messages_are_lost_repeated_and_delayed_as_often_as_said() -> None:
    often = 4000
    faults = NetworkFaults([Loss(0, 1, 0.25), Repeat(2, 3, 0.5, 0.01), Reorder(4, 5, 0.75, 0.01)], Rng(3))
    lost = sum(faults.delays_ns(0, 1, 0) == () for _ in range(often))
    twice = sum(len(faults.delays_ns(3, 2, 0)) == 2 for _ in range(often))
    late = [delays_ns[0] for delays_ns in (faults.delays_ns(4, 5, 0) for _ in range(often)) if delays_ns[0]]
    assert lost / often == pytest.approx(0.25, abs=0.03)
    assert twice / often == pytest.approx(0.5, abs=0.03)
    assert len(late) / often == pytest.approx(0.75, abs=0.03) and 0 < max(late) <= 0.01 * NS
    assert faults.delays_ns(0, 2, 0) == (0,), "nothing happens to the others"


def test_one_way_is_one_way_and_the_supervisor_is_no_worker() -> None:
    faults = NetworkFaults([Loss(0, 1, one_way=True), Loss(None, 5)], Rng(0))
    assert faults.delays_ns(0, 1, 0) == () and faults.delays_ns(1, 0, 0) == (0,)
    assert faults.delays_ns(3, 5, 0) == () and faults.delays_ns(5, 3, 0) == ()
    assert faults.delays_ns(SUPERVISOR, 5, 0) == (0,)


def test_a_throttled_link_carries_its_share() -> None:
    network = Network(Links(Link(1e9)), Rng(0))
    usual_ns = network.arrival(0, 1, 1_000_000, 0)
    network.throttle(0, 1, 0.01)
    slow_ns = network.arrival(1, 0, 1_000_000, 10 * NS) - 10 * NS
    assert slow_ns == pytest.approx(100 * usual_ns, rel=0.01)
    assert network.arrival(2, 3, 1_000_000, 20 * NS) - 20 * NS == usual_ns
    network.throttle(0, 1, None)
    assert network.arrival(0, 1, 1_000_000, 30 * NS) - 30 * NS == usual_ns


# ---------------------------------------------------------------------------------------------------------- whole runs


def test_a_worker_dies_at_its_step_and_no_sample_is_lost() -> None:
    found = run(FaultPlan().kill(2).at_step(3))
    assert found.error == "" and list(found.gone) == [2]
    assert max(point.steps for point in found.history if point.rank == 2) == 3
    assert found.outcome is not None and found.outcome.samples_undone == 0 and found.identical


def test_a_restarted_script_is_a_new_worker() -> None:
    found = run(FaultPlan().restart(1, after_s=0.1).at_step(2), strategy="gossip")
    assert found.error == "" and list(found.gone) == [1] and sorted(found.workers) == [0, 1, 2, 3, 4]
    assert found.workers[4].steps > 0


def test_one_that_is_asked_to_leave_hands_everything_over() -> None:
    found = run(FaultPlan().leave(1).at_step(3))
    assert found.error == "" and found.gone == {1: "left"}
    assert found.outcome is not None and found.outcome.samples_undone == 0 and not found.outcome.failures


def test_a_slow_worker_is_slow_for_so_long() -> None:
    found = run(FaultPlan().slow(1, times=10).between(0.0, 0.3))
    times_s = [point.time_s for point in found.history if point.rank == 1]
    assert times_s[0] == pytest.approx(0.5, rel=0.1) and times_s[2] - times_s[1] == pytest.approx(0.05, rel=0.1)
    assert not found.gone


@pytest.mark.parametrize("moved", [False, True])
def test_the_supervisor_dies_and_comes_back(moved: bool) -> None:
    found = run(FaultPlan().kill_supervisor(back_after_s=0.4, moved=moved).at(0.2))
    assert found.error == "" and not found.gone and sorted(found.workers) == [0, 1, 2, 3]
    assert found.outcome is not None and found.outcome.samples_undone == 0 and found.identical
    during = [point for point in found.history if 0.2 < point.time_s < 0.6]
    assert during, "training goes on while it is away"


@pytest.mark.parametrize("strategy", ["async", "sync", "gossip", "async on a ring"])
def test_a_partition_that_heals_is_reconciled(strategy: str) -> None:
    name, _, ring = strategy.partition(" on a ")
    found = run(FaultPlan().partition({0, 1}, {2, 3}).between(0.2, 1.7), strategy=name, topology=ring)
    assert found.error == "" and not found.gone and found.identical
    assert found.outcome is not None and found.outcome.samples_undone == 0


def test_who_is_cut_off_for_long_is_given_up_and_ends() -> None:
    found = run(FaultPlan().partition({0, 1, 2}, {3}).between(0.2, 40.0))
    assert found.error == "" and list(found.gone) == [3] and found.identical
    assert found.outcome is not None and found.outcome.samples_undone == 0


def test_same_plan_same_run() -> None:
    plan = FaultPlan(seed=3).drop(p=0.1).reorder(p=0.2).duplicate(p=0.2)
    first, again = run(plan), run(plan)
    assert first.history == again.history and first.outcome == again.outcome
    assert run(FaultPlan(4, plan.faults)).history != first.history


def test_a_supervisor_that_never_comes_back_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = FaultPlan().kill_supervisor(back_after_s=None).at_step(2)
    assert isinstance(plan.faults[0], KillSupervisor)
    with pytest.raises(RunFailed, match="not over after 30 s"):
        run(plan, limit_s=30.0)
