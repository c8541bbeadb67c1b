"""Workers join, die and come back while a run changes its strategy: before, during and after that, in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.simulator.models.links import Link, Links
from taut.simulator.models.rng import Rng
from taut.simulator.result import Simulated
from taut.supervisor.run.actions import Action
from taut.supervisor.run.cluster import Cluster
from taut.testing import FaultPlan, run_with_faults
from taut.testing.soak.laws import TALLY, broken_laws
from taut.worker.joining.admission import JoinHandshake

JOB = Path(broken_laws.__code__.co_filename).with_name("job.py")
SLOW = Links(Link(1e9, 0.01))  # being admitted takes some round trips: time for a change
SAMPLES, EPOCHS = 48, 2


def run(plan: FaultPlan, strategy: str, workers: int = 3, samples: int = SAMPLES, **scenario: object) -> Simulated:
    TALLY.clear()
    args = ("--samples", str(samples), "--epochs", str(EPOCHS), "--momentum", "0.9")
    settings = {"step_s": 0.1, "links": SLOW, "limit_s": 200.0, **scenario}
    return run_with_faults(JOB, plan, workers=workers, strategy=strategy, args=args, **settings)  # type: ignore[arg-type]


@pytest.fixture
def begun_anew(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The phases in which somebody begins who was about to in the one before."""
    phases: list[int] = []
    move_on = JoinHandshake._move_on

    def moved(self: JoinHandshake) -> None:
        move_on(self)
        phases.append(self.phases.number)

    monkeypatch.setattr(JoinHandshake, "_move_on", moved)
    return phases


def announced_s(strategy: str, codec: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """Return when the supervisor announces the change, in a run that nobody joins."""
    times: list[float] = []
    advance = Cluster._advance

    def advanced(self: Cluster, now: float) -> list[Action]:
        before = self.ledger.phase
        actions = advance(self, now)
        times.extend([now] if self.ledger.phase > before else [])
        return actions

    with monkeypatch.context() as watched:
        watched.setattr(Cluster, "_advance", advanced)
        run(FaultPlan(1), strategy, codec=codec, samples=96)
    return times[0]


@pytest.mark.parametrize(
    ("strategy", "codec"),
    [
        ("sync for 3 steps, then async", ""),
        ("async for 3 steps, then sync", "tether"),
        ("averaging:every=2 for 3 steps, then sync", ""),
        ("sync for 3 steps, then gossip", "tether"),
    ],
)
def test_who_comes_at_any_moment_of_a_change_joins(
    strategy: str, codec: str, begun_anew: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One newcomer every 8 ms, from before the announcement until everybody has changed; one of them, and one who was
    there before, die on the way."""
    changes_s = announced_s(strategy, codec, monkeypatch)
    plan = FaultPlan(1)
    for number in range(8):
        plan = plan.join(1).at(round(changes_s - 0.024 + 0.008 * number, 4))
    found = run(plan.kill(4).at(changes_s + 0.03).kill(1).at(changes_s + 0.05), strategy, codec=codec, samples=96)
    assert broken_laws(found, TALLY, 96, EPOCHS) == []
    assert found.outcome is not None and len(found.outcome.workers) == 11 and found.phase == 1
    assert begun_anew and set(begun_anew) == {1}, "somebody was about to join when the phase changed"


@pytest.mark.parametrize("seed", range(4))
def test_comings_and_goings_in_any_order_break_no_law(seed: int) -> None:
    strategies = (
        "sync for 2 steps, then ssp:2 for 2 steps, then dpsgd",
        "async for 2 steps, then async for 2 steps, then sync",
        "gossip for 3 steps, then relay",
        "sync for 2 steps, then sync for 2 steps, then sync",
    )
    dice, plan = Rng(seed, "comings"), FaultPlan(seed)
    for _ in range(3):
        plan = plan.join(1).at(round(0.2 + 0.6 * dice.random(), 4))
    plan = plan.restart(1, after_s=0.2).at(round(0.2 + 0.5 * dice.random(), 4))
    plan = plan.kill(4).at(round(0.4 + 0.6 * dice.random(), 4))
    found = run(plan, strategies[seed], codec="" if seed == 3 else "tether")
    assert broken_laws(found, TALLY, SAMPLES, EPOCHS) == []


@pytest.mark.parametrize(
    ("strategy", "plan"),
    [
        (  # who had ended the phase no longer answered one who was still about to, once it was out of data
            "gossip for 3 steps, then relay",
            "FaultPlan(seed=20).join(1).at(0.449).join(1).at(0.4859).join(1).at(0.5034).join(1).at(0.5288).kill(3).at(0.6045)"
            ".join(1).at(0.37).kill(4).at(0.6866).drop(None, None, p=0.1)",
        ),
        (  # what had come before a worker was in the phase was heard after what came then
            "gossip for 3 steps, then relay",
            "FaultPlan(seed=101).join(1).at(0.5318).join(1).at(0.349).kill(4).at(0.6428).drop(None, None, p=0.1)",
        ),
        (  # after a death, the phase before was drained again, and was taken for the present one
            "independent for 2 steps, then async for 2 steps, then averaging:every=2",
            "FaultPlan(seed=107).join(1).at(0.6237).kill(0).at(0.6356).join(1).at(0.448).kill(4).at(0.8471)"
            ".drop(None, None, p=0.1)",
        ),
        (  # who came too late for any data had no moments to average
            "async for 3 steps, then sync",
            "FaultPlan(seed=233).join(1).at(0.5043).join(1).at(0.5354).join(1).at(0.5003).kill(1).at(0.6566)"
            ".drop(None, None, p=0.1)",
        ),
    ],
)
def test_what_once_went_wrong(strategy: str, plan: str) -> None:
    found = run(FaultPlan.parse(plan), strategy, samples=64, codec="tether")
    assert broken_laws(found, TALLY, 64, EPOCHS) == []


@pytest.mark.parametrize("strategy", ["async for 4 steps, then sync", "sync for 4 steps, then async"])
def test_one_that_stood_still_during_the_change_is_back_in_the_next_phase(strategy: str) -> None:
    plan = FaultPlan(3).pause(2, for_s=14.0).at(3.0)
    found = run(plan, strategy, codec="tether", step_s=2.0, links=Links(Link(1e9, 1e-4)), samples=96)
    assert broken_laws(found, TALLY, 96, EPOCHS) == [] and list(found.gone) == [2] and found.phase == 1
    assert found.outcome is not None and not found.outcome.failures
    assert found.workers[3].steps > 0, "it trains again"
