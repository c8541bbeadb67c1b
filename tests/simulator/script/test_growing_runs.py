"""A model that grows in mid-run, in virtual time: what is carried stays to the bit, what is new is the same at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.simulator.models.links import Link, Links
from taut.simulator.models.rng import Rng
from taut.simulator.result import Simulated
from taut.testing import FaultPlan, run_with_faults
from taut.testing.soak.laws import TALLY, broken_laws

JOB = Path(__file__).with_name("growing_job.py")
SAMPLES, EPOCHS = 96, 2
NOTHING = FaultPlan(1)


def run(plan: FaultPlan, strategy: str, *args: str, workers: int = 3, codec: str = "") -> Simulated:
    TALLY.clear()
    settings = {"step_s": 0.1, "links": Links(Link(1e9, 0.002)), "limit_s": 200.0, "codec": codec}
    return run_with_faults(JOB, plan, workers=workers, strategy=strategy, args=args, **settings)  # type: ignore[arg-type]


def bits(found: Simulated) -> str:
    assert found.error == "" and found.outcome is not None
    return found.outcome.digest


@pytest.mark.parametrize(
    ("strategy", "workers", "codec"),
    [("sync", 2, ""), ("sync", 3, ""), ("async", 1, "dense"), ("averaging:every=4", 1, "")],
)
def test_a_growth_to_the_same_shapes_changes_no_bit(strategy: str, workers: int, codec: str) -> None:
    none, same = (run(NOTHING, strategy, "--own", "--to", to, workers=workers, codec=codec) for to in ("none", "same"))
    assert bits(none) == bits(same)


def test_growing_to_another_model_does_change_it() -> None:
    assert bits(run(NOTHING, "sync", "--own")) != bits(run(NOTHING, "sync", "--own", "--to", "none"))


@pytest.mark.parametrize(
    ("strategy", "codec"),
    [
        ("sync", ""),
        ("async", "tether"),
        ("averaging:every=4", ""),
        ("dpsgd", ""),
        ("easgd:every=4", ""),
        ("gossip", "tether"),
        ("sync for 4 steps, then async for 8 steps, then averaging:every=2", "tether"),
    ],
)
@pytest.mark.parametrize("to", ["deeper", "shared"])
def test_new_weights_are_the_lowest_rank_s_everywhere_and_carried_ones_and_their_moments_stay(
    strategy: str, codec: str, to: str, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    found = run(NOTHING, strategy, "--told", str(told), "--to", to, codec=codec)
    assert broken_laws(found, TALLY, SAMPLES, EPOCHS) == []
    rows = sorted(line.split() for line in told.read_text().splitlines())
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert len({row[1] for row in rows}) == 1, "all begin with the same bits"
    assert {row[3] for row in rows} == {"True"}, "moments of the first layer, none of the last one"
    if strategy == "sync":
        assert {row[2] for row in rows} == {"True"}, "carried as it was"


@pytest.mark.parametrize("strategy", ["sync", "async", "averaging:every=4"])
@pytest.mark.parametrize("seed", range(3))
def test_deaths_and_arrivals_around_a_growth_break_no_law(strategy: str, seed: int) -> None:
    dice = Rng(seed, strategy)
    plan = FaultPlan(seed).join(1).at(round(0.2 + 0.3 * dice.random(), 4))
    plan = plan.kill(1).at(round(0.2 + 1.2 * dice.random(), 4))
    found = run(plan.drop(None, None, p=0.05), strategy, codec="tether" if strategy == "async" else "")
    assert broken_laws(found, TALLY, SAMPLES, EPOCHS) == [] and found.phase == 0


def test_the_first_worker_dies_in_the_very_round_that_its_weights_go_round(tmp_path: Path) -> None:
    """Whenever it dies around the growth, the others go on with one model."""
    for number in range(8):
        plan = FaultPlan(number).kill(0).at(round(0.88 + 0.004 * number, 4))
        found = run(plan, "averaging:every=4", "--told", str(tmp_path / str(number)))
        assert broken_laws(found, TALLY, SAMPLES, EPOCHS) == []
        others = [line.split()[1] for line in (tmp_path / str(number)).read_text().splitlines() if line[0] != "0"]
        assert len(others) == 2 and len(set(others)) == 1


def test_who_comes_after_the_growth_cannot_join_and_the_others_go_on() -> None:
    found = run(NOTHING.join(1).at(1.5), "sync")
    assert broken_laws(found, TALLY, SAMPLES, EPOCHS) == []
    assert found.outcome is not None and len(found.outcome.workers) == 3


def test_a_worker_that_asks_for_another_model_is_refused_and_the_others_grow() -> None:
    found = run(NOTHING, "sync", "--odd", "2")
    assert found.outcome is not None and found.outcome.exit_code == 1
    (why,) = found.outcome.failures
    assert "worker.grow to another model: trained tensor '2.weight' of shape 25x24" in why
    assert found.identical and set(found.gone) == {2}


@pytest.mark.long
@pytest.mark.parametrize(
    "strategy",
    [
        "sync:backup=1", "server", "codistillation", "diloco:every=4", "fedavg:steps=4", "relaysgd", "admm:every=4",
        "ssp:2", "choco", "adpsgd", "sgp", "dynamic:every=2", "sparseloco:every=4", "noloco:every=4",
    ],
)  # fmt: skip
def test_every_strategy_grows(strategy: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    found = run(NOTHING, strategy, "--told", str(told))
    assert found.error == "" and len(found.workers) == 3 and not found.gone
    assert len({line.split()[1] for line in told.read_text().splitlines()}) == 1, "all begin with the same bits"
