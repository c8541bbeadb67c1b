"""Deaths, pauses and joins at any time: the others go on, come to an end, and do what they should."""

from __future__ import annotations

import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as draw

from taut.errors import Misuse
from taut.simulator.faults import Departure, Fail, Fault, Join, Pause
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.timing.simulation import simulate_timing
from taut.simulator.trace import Trace
from taut.strategies.registry import REGISTRY, parse

STEPS = 15
LINKS = Links(Link(1e8, 1e-3))
JOINED = [name for name in sorted(REGISTRY) if not parse(name).is_method or parse(name).kind.admits_late]


def run(name: str, faults: tuple[Fault, ...], workers: int, together: bool | None, seed: int = 0) -> Simulated:
    speeds = Speeds(0.01, "lognormal:0.3")
    scenario = Scenario(
        workers, name, seed=seed, steps=STEPS, parameters=20_000, links=LINKS, speeds=speeds, faults=faults
    )
    return simulate_timing(scenario, detect_s=0.02, together=together)


@pytest.mark.parametrize("name", sorted(REGISTRY))
@settings(max_examples=some(12), deadline=None)
@given(
    deaths=draw.lists(draw.tuples(draw.integers(0, 4), draw.floats(0.0, 0.5)), min_size=1, max_size=4),
    workers=draw.integers(2, 5),
    together=draw.booleans(),
    seed=draw.integers(0, 9),
)
def test_whoever_dies_whenever_the_others_come_to_an_end(
    name: str, deaths: list[tuple[int, float]], workers: int, together: bool, seed: int
) -> None:
    faults = tuple(Fail(rank % workers, at_s) for rank, at_s in deaths)
    done = run(name, faults, workers, together, seed)
    left = [rank for rank in range(workers) if rank not in done.gone]
    assert bool(done.error) == (not left)
    assert all(done.workers[rank].steps == STEPS for rank in left)
    assert all(done.workers[rank].steps <= STEPS for rank in done.gone)


@pytest.mark.parametrize("together", [True, False])
def test_synchronous_training_stands_still_while_a_newcomer_is_given_the_state(together: bool) -> None:
    """For as long as the weights and Adam's averages take."""
    found = []
    for faults in ((), (Join(1, 0.2),)):
        given = {"seed": 0, "steps": 20, "parameters": 1_000_000, "links": Links(Link(1e9, 1e-4)), "faults": faults}
        scenario = Scenario(3, "sync:bucket_mib=0", speeds=Speeds(0.01, "constant"), **given)  # type: ignore[arg-type]
        found.append(simulate_timing(scenario, together=together))
    quiet, joined = found
    assert joined.workers[3].steps > 0
    pause_s, round_s = 12e6 * 8 / 1e9, quiet.wall_s / 20
    assert pause_s < joined.wall_s - quiet.wall_s < pause_s + 4 * round_s


@pytest.mark.parametrize("name", JOINED)
@settings(max_examples=some(6), deadline=None)
@given(at_s=draw.floats(0.0, 0.12), count=draw.integers(1, 3), dies_s=draw.none() | draw.floats(0.0, 0.2))
def test_newcomers_take_part(name: str, at_s: float, count: int, dies_s: float | None) -> None:
    deaths = () if dies_s is None else (Fail(0, dies_s),)
    done = run(name, (Join(count, at_s), *deaths), 3, None)
    assert not done.error
    newcomers = [rank for rank in done.workers if rank >= 3]
    assert len(newcomers) == count or at_s > 0.05  # who comes when all have ended is too late
    assert all(0 < done.workers[rank].steps <= STEPS for rank in newcomers)


@pytest.mark.parametrize("workers", [4, 12])
def test_a_death_stops_sync_until_it_is_noticed(workers: int) -> None:
    steady = simulate_timing(Scenario(workers, "sync", steps=20, parameters=1000))
    faults = (Fail(2, 0.105),)
    stopped = simulate_timing(Scenario(workers, "sync", steps=20, parameters=1000, faults=faults), detect_s=1.0)
    assert stopped.wall_s - steady.wall_s == pytest.approx(1.0, abs=0.02)
    assert stopped.gone == {2: "failed at 0.105 s"}


def test_a_death_stops_nobody_in_async() -> None:
    faults = (Fail(2, 0.105),)
    done = simulate_timing(Scenario(4, "gossip", "ring", steps=100, parameters=1000, faults=faults), detect_s=0.3)
    assert done.wall_s < 1.1


@pytest.mark.parametrize("name", ["sync", "async", "dpsgd"])
def test_a_pause_takes_its_time(name: str) -> None:
    quick, slow = (
        simulate_timing(Scenario(3, name, steps=20, parameters=1000, faults=faults))
        for faults in ((), (Pause(1, 0.055, 0.4),))
    )
    assert slow.wall_s - quick.wall_s == pytest.approx(0.4, abs=0.02)
    others = [slow.workers[rank].wait_s for rank in (0, 2)]
    assert all(wait_s >= 0.35 for wait_s in others)


def test_faults_are_in_the_trace() -> None:
    trace = Trace({})
    faults = (Fail(1, 0.05), Pause(0, 0.02, 0.01), Join(1, 0.03))
    simulate_timing(Scenario(3, "gossip", steps=20, parameters=1000, faults=faults), trace=trace, detect_s=0.05)
    text = "\n".join(trace.lines())
    assert all(f'"{what}"' in text for what in ("fails", "is noticed to be gone", "stands still", "joins", "is ready"))


def test_misuse() -> None:
    with pytest.raises(Misuse, match="join with strategy 'sync'"):
        simulate_timing(Scenario(4, "sync:schedule=gloo", faults=(Join(1, 0.1),)))
    with pytest.raises(Misuse, match="worker 9"):
        simulate_timing(Scenario(4, "sync", faults=(Fail(9, 0.1),)))


def test_a_worker_leaves_a_delayed_diloco_while_it_waits() -> None:
    leaves = Departure(rank=3, at_s=0.06)
    links = Links(Link(1e8, 1e-4))
    done = simulate_timing(Scenario(4, "diloco:every=3,delayed=true", steps=30, links=links, faults=(leaves,)))
    assert done.gone == {3: "left"} and not done.missed and not done.error
