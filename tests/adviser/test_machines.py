"""From a probe to the simulator's machines: rates, delays and paces are those that were measured."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probes import link, probe, worker

from taut.adviser.machines import WIRE, costs_of, links_of, speeds_of
from taut.adviser.record import Probe
from taut.simulator.models.network import Network
from taut.simulator.models.rng import Rng
from taut.simulator.models.speeds import Pace


def cluster(*links: tuple[int, int, float, float]) -> Probe:
    ranks = sorted({rank for one in links for rank in one[:2]})
    listed = [link(one, other, rate, trip_s) for one, other, rate, trip_s in links]
    return Probe(1, "", "", "", [], False, 1000, [worker(rank) for rank in ranks], listed)


@given(rate=st.floats(1e4, 1e9), trip_s=st.floats(1e-5, 0.2), nbytes=st.integers(10**5, 10**8))
def test_a_message_takes_as_long_as_it_was_measured_to_take(rate: float, trip_s: float, nbytes: int) -> None:
    network = Network(links_of(cluster((0, 1, rate, trip_s))), Rng(0))
    assert network.arrival(0, 1, nbytes, 0) * 1e-9 == pytest.approx(nbytes / rate + trip_s / 2, rel=2e-3)


def test_a_slow_worker_has_a_slow_cable_and_the_others_do_not() -> None:
    slow, fast = 1e6, 1e8
    links = links_of(cluster((0, 1, fast, 1e-3), (0, 2, slow, 1e-3), (1, 2, slow, 1e-3)))
    network = Network(links, Rng(0))
    assert network.arrival(0, 1, 10**6, 0) < 0.02e9
    assert network.arrival(1, 2, 10**6, 0) == pytest.approx(1e9, rel=0.01)
    assert not links.of_pair


def test_a_slow_line_between_two_fast_cables_is_the_pairs_own() -> None:
    links = links_of(cluster((0, 1, 1e8, 1e-3), (0, 2, 1e8, 1e-3), (1, 2, 1e6, 0.1)))
    assert set(links.of_pair) == {(1, 2)}
    network = Network(links, Rng(0))
    assert network.arrival(1, 2, 10**6, 0) == pytest.approx(1.05e9, rel=0.01)
    assert Network(links, Rng(0)).arrival(0, 2, 10**6, 0) == pytest.approx(0.0105e9, rel=0.01)


def test_what_handling_a_message_takes_is_not_counted_twice() -> None:
    network = Network(links_of(cluster((0, 1, 1e8, 1e-3)), message_s=1e-4), Rng(0))
    assert network.arrival(0, 1, 0, 0) * 1e-9 == pytest.approx(3e-4 + 66 * 8 / (8 * WIRE * 1e8), rel=1e-3)
    assert links_of(cluster((0, 1, 1e8, 1e-4)), message_s=1.0).default.latency_s == 0.0


def test_ranks_are_counted_anew_and_links_to_the_lost_forgotten() -> None:
    found = cluster((3, 7, 1e8, 1e-3))
    assert links_of(found).default.bits_per_s == pytest.approx(8e8 * WIRE)
    lost = Probe(1, "", "", "", [], False, 1000, [worker(3)], found.links)
    assert math.isinf(links_of(lost).default.bits_per_s)


def test_paces_are_the_workers_own() -> None:
    speeds = speeds_of(probe(3, steps_s=[0.01, 0.01, 0.04]))
    pace = Pace(speeds, Rng(0))
    mean_s = [sum(pace.step_ns(rank, step) for step in range(2000)) / 2000 * 1e-9 for rank in range(3)]
    assert mean_s == pytest.approx([0.01, 0.01, 0.04], rel=0.03)


def test_codecs_cost_what_the_middle_worker_measured() -> None:
    costs = costs_of(probe(3))
    assert costs.codec("tether").bits_per_element == 0.4
    assert costs.codec("dense").encode_s_per_element == 1e-9
