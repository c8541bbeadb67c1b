"""All-reduces executed for all places at once: as message by message, and as the formulas say."""

from __future__ import annotations

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as draw

from taut.collectives import named
from taut.simulator.models.costs import Costs
from taut.simulator.models.links import Link, Links, Shared
from taut.simulator.models.speeds import Speeds
from taut.simulator.scenario import Scenario
from taut.simulator.timing import allreduce_kernel
from taut.simulator.timing.allreduce_kernel import table
from taut.simulator.timing.simulation import simulate_timing

FREE = Costs(message_s=0.0, send_s_per_byte=0.0, receive_s_per_byte=0.0, copy_s_per_byte=0.0)
# Over a grid of 960 settings: 0.2%, 2.1% and 8.0%. The faster the link, the more the order of small things matters.
WITHIN = {100: 0.01, 1000: 0.04, 10_000: 0.12}


def both(strategy: str, workers: int, **given: object) -> tuple[float, float]:
    scenario = Scenario(workers, strategy, **{"steps": 10, "speeds": Speeds(0.01, "lognormal:0.3"), **given})  # type: ignore[arg-type]
    one, other = (simulate_timing(scenario, together=together).wall_s for together in (False, True))
    return one, other


@settings(max_examples=some(12), deadline=None)
@given(
    schedule=draw.sampled_from(["ring", "torus"]),
    workers=draw.integers(2, 8),
    million=draw.integers(1, 20),
    mbit=draw.sampled_from([100, 1000, 10_000]),
    latency_us=draw.integers(0, 500),
    costs=draw.sampled_from([FREE, Costs()]),
)
def test_together_is_as_message_by_message(
    schedule: str, workers: int, million: int, mbit: int, latency_us: int, costs: Costs
) -> None:
    links = Links(Link(mbit * 1e6, latency_us * 1e-6))
    given = {"parameters": million * 1_000_000, "links": links, "costs": costs, "steps": 5}
    messages, together = both(f"sync:bucket_mib=0,schedule={schedule}", workers, **given)
    assert together == pytest.approx(messages, rel=WITHIN[mbit])


@pytest.mark.parametrize("name", ["sync", "averaging:every=4", "fedavg:steps=5", "admm", "diloco:every=5"])
@pytest.mark.parametrize("workers", [3, 8])
def test_so_are_the_methods_that_stand_on_it(name: str, workers: int) -> None:
    messages, together = both(name, workers, parameters=4_000_000, links=Links(Link(1e9, 1e-4)))
    assert together == pytest.approx(messages, rel=0.02)


@pytest.mark.parametrize(("schedule", "within"), [("halving-doubling", 0.21), ("tree", 0.25)])
@pytest.mark.parametrize("workers", [4, 6, 8])
def test_where_ranges_are_not_passed_on_whole_it_is_near(schedule: str, workers: int, within: float) -> None:
    """A send waits here for all that came before, also where it does not need all: a bound from above."""
    given = {"parameters": 4_000_000, "links": Links(Link(1e9, 1e-4))}
    messages, together = both(f"sync:bucket_mib=0,schedule={schedule}", workers, **given)
    allowed = 0.03 if workers in (4, 8) else within
    assert messages * 0.98 < together < messages * (1 + allowed)


def test_a_slow_cable_slows_everybody() -> None:
    links = Links(Link(1e9, 1e-4), {3: Link(1e8, 1e-4)})
    messages, together = both("sync:bucket_mib=0", 6, parameters=4_000_000, links=links)
    assert together == pytest.approx(messages, rel=0.05)
    alike, _ = both("sync:bucket_mib=0", 6, parameters=4_000_000, links=Links(Link(1e9, 1e-4)))
    assert messages > 5 * alike


@pytest.mark.parametrize(
    "links",
    [
        Links(Link(1e9, 1e-4), per_host=2),
        Links(Link(1e9, 1e-4), shared=(Shared(frozenset({0, 1, 2}), 2e8),)),
        Links(Link(1e9, 1e-4), shared=(Shared(frozenset(), 1e9),)),
    ],
    ids=["hosts", "uplink", "switch"],
)
def test_shared_cables(links: Links) -> None:
    messages, together = both("sync:bucket_mib=0", 6, parameters=4_000_000, links=links)
    assert together == pytest.approx(messages, rel=0.15)


def test_a_table_is_the_programs() -> None:
    found = table(named("ring"), range(3), 3000, Links(Link(8e9)), FREE)
    assert found.to.tolist() == [[1, 2, 0]] * 4
    ends = found.run(np.zeros(3))
    assert ends.tolist() == pytest.approx([4 * (4000 + 48) * 1514 / 1448] * 3, rel=0.03)
    late = found.run(np.array([0.0, 0.0, 1e6]))
    assert late.max() == pytest.approx(1e6 + ends.max(), rel=0.01)


def test_beyond_a_table_the_formula_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    links, costs = Links(Link(1e9, 1e-3)), FREE
    whole = table(named("ring"), range(40), 100_000, links, costs)
    monkeypatch.setattr(allreduce_kernel, "MOST_ENTRIES", 100)
    formula = table(named("ring"), range(40), 100_000, links, costs)
    starts = np.arange(40, dtype=np.float64)
    assert formula.run(starts).max() == pytest.approx(whole.run(starts).max(), rel=0.02)
    assert formula.sent_nbytes[0] == pytest.approx(whole.sent_nbytes[0], rel=0.02)
