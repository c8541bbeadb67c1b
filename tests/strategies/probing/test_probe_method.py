"""The probe's method: it passes the conformance suite of methods, and measures every link once, with one clock."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import REGISTRY as CODECS
from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse
from taut.strategies.api import Draining, Finished, Heard, MembersChanged, Proceed, Stepped, Tell
from taut.strategies.probing import link_measurement
from taut.strategies.probing.link_measurement import (
    FIRST_BURST_NBYTES,
    MOST_BURST_NBYTES,
    LinkFigures,
    Measurement,
    answer,
    burst,
    pairs,
)
from taut.strategies.probing.probe_method import MOST_CODECS, Probing
from taut.strategies.probing.probe_state import CodecFigures, ProbeState
from taut.strategies.registry import REGISTRY, parse
from taut.testing.checks.method_check import check_method
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld
from taut.worker.codec_costs.shadow import ShadowCodec


@pytest.fixture(scope="module", autouse=True)
def small_bursts() -> Iterator[None]:
    """In a world where time stands still, every link looks fast: bursts would grow to the largest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link_measurement, "MOST_BURST_NBYTES", 4 * FIRST_BURST_NBYTES)
        yield


@given(seed=st.integers(0, 2**32), lossy=st.booleans(), workers=st.integers(1, 6))
@settings(max_examples=some(25), deadline=None)
def test_nobody_waits_for_ever_whoever_dies_or_joins(seed: int, lossy: bool, workers: int) -> None:
    check_method(Probing(2, 0, seconds=0.0), seed, workers=workers, lossy=lossy)


class Watched(Actor):
    def shadow(self, name: str, workers: int, step_s: float) -> ShadowCodec:
        return ShadowCodec(name, self.x, workers, step_s)


@given(seed=st.integers(0, 2**32), workers=st.integers(1, 10))
@settings(max_examples=some(15), deadline=None)
def test_every_link_is_measured_once_by_one_end(seed: int, workers: int) -> None:
    world = MethodWorld(Probing(2, 2, seconds=0.0), [np.ones(64, np.float32)] * workers, seed=seed, actor=Watched)
    world.run(60, freely=True)
    measured = [(rank, to) for rank, actor in world.actors.items() for to in actor.method_state.links]
    assert sorted(measured) == sorted(pairs(tuple(range(workers))))
    for actor in world.actors.values():
        assert set(actor.method_state.codecs) == {"tether", "threshold", "dense"}
        assert np.array_equal(actor.x, np.ones(64, np.float32)), "the probe touched the weights"


def test_any_codec_can_be_watched() -> None:
    """All of them, five at a time: also those that scan the whole vector, where fragments would be."""
    known = sorted(CODECS)
    for first in range(0, len(known), MOST_CODECS):
        some = known[first : first + MOST_CODECS]
        method = Probing(2, 2, seconds=0.0, watch="+".join(some))
        world = MethodWorld(method, [np.ones(5000, np.float32)] * 2, seed=1, actor=Watched)
        world.run(40, freely=True)
        assert all(set(actor.method_state.codecs) == set(some) for actor in world.actors.values())
    for wrong in ("", "int8+int8", "a+b+c+d+e+f", "int8+"):
        with pytest.raises(Misuse, match="watch="):
            Probing(watch=wrong)


def test_codecs_that_see_the_whole_are_not_cut_where_others_are() -> None:
    """Where encoding takes much of a step."""
    rng, x = np.random.default_rng(0), np.zeros(1 << 16, np.float32)
    shadows = [ShadowCodec(name, x, 2, step_s=1e-6) for name in ("powersgd", "int8")]
    for _ in range(20):
        x += rng.standard_normal(len(x), np.float32)
        for shadow in shadows:
            shadow.follow(x)
    whole, cut = (shadow.fragments for shadow in shadows)
    assert whole == 1 < cut
    assert all(shadow.figures().bits_per_element > 0.0 for shadow in shadows)


def test_the_longest_names_and_the_most_links_fit_into_a_report() -> None:
    most = max(sum(one == rank for one, _ in pairs(tuple(range(n)))) for n in (8, 99) for rank in range(n))
    figures = CodecFigures(1.234e-10, 1.234e-10, 12.34)
    link = LinkFigures(1.234e-05, 1.234e-05, 1.234e08, 1.234e08)
    state = MethodWorld(Probing(), [np.ones(2_500_000, np.float32)] * 2, actor=Watched).actors[0].method_state
    state.codecs = dict.fromkeys(sorted(CODECS, key=len)[-MOST_CODECS:], figures)
    state.links = dict.fromkeys(range(99 - most, 99), link)
    assert len(" ".join(f"{name}={value:g}" for name, value in Probing().figures(state).items())) <= 1024


def test_a_death_in_the_middle_costs_only_that_worker() -> None:
    world = MethodWorld(Probing(1, 0, seconds=0.0), [np.ones(8, np.float32)] * 4, seed=5)
    while not any(actor.method_state.measurement for actor in world.actors.values()):
        assert world._happen(sorted(world.actors))
    world.kill(0)  # the one who conducts
    world.run(30, freely=True)
    measured = {(rank, to) for rank, actor in world.actors.items() for to in actor.method_state.links}
    assert {(1, 2), (1, 3), (2, 3)} <= measured
    assert all(actor.method_state.complete for actor in world.actors.values())


def test_only_one_link_is_measured_at_a_time() -> None:
    world = MethodWorld(Probing(1, 0, seconds=0.0), [np.ones(8, np.float32)] * 5, seed=2)
    seen = 0
    for _ in range(3000):
        if not world._happen(sorted(world.actors)):
            break
        busy = sum(actor.method_state.measurement is not None for actor in world.actors.values())
        assert busy <= 1
        seen += busy
    assert seen > 0


class Wire:
    """A link in virtual time: ``trip_s`` there and back, so many bytes per second each way."""

    def __init__(self, trip_s: float, out: float, back: float) -> None:
        self.trip_s, self.out, self.back, self.now, self.carried = trip_s, out, back, 100.0, 0

    def measure(self) -> LinkFigures:
        measurement = Measurement(partner=1, version=0)
        sends = measurement.ask(self.now)
        while measurement.figures is None:
            nbytes = sum(len(tell.payload) for tell in sends)
            answers = [reply for tell in sends for reply in answer(0, tell.note)]
            returned = sum(len(tell.payload) for tell in answers)
            self.carried += nbytes + returned
            self.now += self.trip_s + nbytes / self.out + returned / self.back
            assert len([1 for reply in answers if measurement.awaits(1, reply.note)]) == len(answers)
            sends = [tell for reply in answers for tell in measurement.heard(reply.note, self.now)]
        return measurement.figures


@given(
    trip_s=st.floats(1e-5, 0.3),
    out=st.floats(1e4, 1e10),
    back=st.floats(1e4, 1e10),
)
@settings(max_examples=60, deadline=None)
def test_the_arithmetic_finds_the_link(trip_s: float, out: float, back: float) -> None:
    figures = Wire(trip_s, out, back).measure()
    assert figures.round_trip_s == pytest.approx(trip_s, rel=1e-6)
    assert figures.out_bytes_per_s == pytest.approx(out, rel=1e-3)
    assert figures.back_bytes_per_s == pytest.approx(back, rel=1e-3)


def test_a_slow_link_is_not_kept_busy_for_long() -> None:
    wire = Wire(0.001, 1.25e6, 1.25e6)  # 10 Mbit/s
    wire.measure()
    assert wire.now - 100.0 < 1.0
    assert wire.carried <= 2 * (FIRST_BURST_NBYTES + 4 * FIRST_BURST_NBYTES)


def test_bursts_carry_what_was_asked_and_no_more() -> None:
    for nbytes in (1, 1 << 20, (1 << 20) + 1, 5_000_000):
        sent = burst(3, 7, 2, nbytes)
        assert sum(len(tell.payload) for tell in sent) == nbytes
        assert [tell.note.numbers[0] == 0 for tell in sent] == [False] * (len(sent) - 1) + [True]
    with pytest.raises(MalformedMessage, match="at most"):
        answer(0, Note("pull", 1, 0, [float(MOST_BURST_NBYTES) + 1]))
    with pytest.raises(MalformedMessage):
        answer(0, Note("pull", 1, 0, [float("nan")]))


def test_what_comes_from_the_network_is_checked() -> None:
    world = MethodWorld(Probing(), [np.ones(8, np.float32)] * 2)
    state: ProbeState = world.actors[0].method_state
    method = world.method
    for note, payload in [
        (Note("nonsense", 0, 1), b""),
        (Note("ready", 0, 1), b"abc"),
        (Note("measure", 0, 1, [9.0]), b""),
        (Note("measure", 0, 1, [float("nan")]), b""),
        (Note("measure", 0, 1, []), b""),
        (Note("pull", 0, 1, []), b""),
    ]:
        with pytest.raises(MalformedMessage):
            method.on(state, Heard(1, note, payload), 0.0)


def test_a_drain_ends_it_at_any_moment() -> None:
    world = MethodWorld(Probing(1, 0, seconds=0.0), [np.ones(8, np.float32)] * 2)
    method, state = world.method, world.actors[0].method_state
    for second in range(6):
        actions = method.on(state, Stepped(4), float(second))
    assert state.held and not any(isinstance(action, Proceed) for action in actions)
    answers = method.on(state, Draining(), 9.0)
    assert {type(action) for action in answers} == {Proceed, Tell, Finished}
    assert method.on(state, MembersChanged(world.membership(0)), 9.0) == []
    assert not state.complete and method.figures(state)["measured"] == 0.0


def test_a_worker_that_waits_for_data_does_not_hold_up_those_who_have_it() -> None:
    world = MethodWorld(Probing(1, 0, seconds=0.0), [np.ones(8, np.float32)] * 2)
    method, state = world.method, world.actors[1].method_state
    method.on(state, Heard(0, Note("ready", 0, 1), b""), 0.0)
    held = [not any(isinstance(a, Proceed) for a in method.on(state, Stepped(0), float(k))) for k in range(8)]
    assert held == [False] * 7 + [True]


def test_figures_fit_into_the_statistics() -> None:
    world = MethodWorld(Probing(3, 1, seconds=0.0), [np.ones(64, np.float32)] * 64, seed=1)
    for rank, actor in world.actors.items():
        links = [other for one, other in pairs(tuple(range(64))) if one == rank]
        actor.method_state.links = {other: LinkFigures(0.000123456, 0.000123456, 1.23456e8, 1.23456e8) for other in links}
        actor.method_state.times.step_s, actor.method_state.times.batches = [0.0123456] * 3, [64] * 3
        figures = world.method.figures(actor.method_state)
        assert len(" ".join(f"{name}={value:g}" for name, value in figures.items())) < 1024 - 3 * 3 * 24  # and codecs


def test_it_is_chosen_by_a_command_not_by_users() -> None:
    assert parse("probe").name == "probe" and "probe" not in list(REGISTRY)
    assert parse("probe:steps=5").method() == Probing(steps=5)
    with pytest.raises(Misuse, match="steps=0"):
        parse("probe:steps=0")
