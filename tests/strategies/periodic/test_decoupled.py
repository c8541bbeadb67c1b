"""Decoupled DiLoCo: a quorum is enough for a round, and the work of whoever is late is merged later, once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.events import Ended
from taut.errors import Misuse
from taut.strategies import parse
from taut.strategies.api import Draining
from taut.strategies.periodic.diloco import DiLoCo
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

SIZE = 4


def marks(actor: Actor) -> int:
    """Each worker moves an element of its own."""
    actor.x[actor.rank] += np.float32(1.0)
    return 8


def plain(every: int = 2, quorum: int = 2, **settings: int) -> DiLoCo:
    return DiLoCo(every=every, quorum=quorum, outer_rate=1.0, outer_momentum=0.0, **settings)


def world_of(method: DiLoCo, workers: int = 3) -> MethodWorld:
    return MethodWorld(method, [np.zeros(SIZE, np.float32)] * workers, step=marks)


def steps(world: MethodWorld, *ranks: int) -> None:
    """One step of each, if it may, and all messages."""
    for rank in ranks:
        if world.actors[rank].proceed:
            world.take_step(rank)
    while world.deliver():
        pass


def test_two_of_three_go_on_and_the_third_loses_nothing() -> None:
    world = world_of(plain())
    steps(world, 0, 1, 2)
    for _ in range(3):
        steps(world, 0, 1)
    fast, late = world.actors[0], world.actors[2]
    assert fast.steps == world.actors[1].steps == 4 and fast.proceed, "nobody waited for the third"
    assert fast.x[:3].tolist() == [2.0, 2.0, 0.0], "two rounds of two: 1 + 1 each"
    assert late.x[:3].tolist() == [0.0, 0.0, 1.0] and late.steps == 1
    steps(world, 2)  # its second step: it takes what it missed, keeps its own change, and gives it
    assert late.x[:3].tolist() == [2.0, 2.0, 2.0] and not late.proceed
    assert late.method_state.rounds == 2
    for _ in range(2):
        steps(world, 1)  # the coordinator's comes last, so the round is of all
        steps(world, 0)
    assert late.proceed, "the round in which its work is"
    (mean,) = {tuple(actor.x[:3].tolist()) for actor in world.actors.values()}
    assert mean == pytest.approx((2 + 2 / 3, 2 + 2 / 3, 2 / 3), abs=1e-5), "each has made two steps of the same weight"


def test_a_vector_that_comes_too_late_is_given_again() -> None:
    """Its round was closed while it was under way: the change stays with its worker, and its samples."""
    world = world_of(plain())
    for _ in range(2):
        for rank in (0, 1, 2):
            world.take_step(rank)
    world.finish()
    for actor in world.actors.values():
        assert np.allclose(actor.x[:3], 2 / 3, atol=1e-4), "once, whatever round it is in"


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 3), st.booleans())
@settings(max_examples=20, deadline=None)
def test_everybodys_steps_are_in_the_model_once(seed: int, quorum: int, fragments: int, lossy: bool) -> None:
    """Workers of very different speeds; in the end each one's mark is the sum of its shares: nothing twice, all in."""
    method = plain(every=3, quorum=quorum, fragments=fragments)
    starts = [np.zeros(SIZE, np.float32)] * 4
    world = MethodWorld(method, starts, step=marks, seed=seed, lossy=lossy, speeds=[1.0, 1.0, 0.3, 0.1])
    world.run(6, freely=True)
    world.finish()
    assert world.spread() == 0.0
    assert all(fragment.samples == 0 for actor in world.actors.values() for fragment in actor.method_state.fragments)
    made = np.array([actor.steps for _, actor in sorted(world.actors.items())])
    x = world.vectors()[0]
    assert (x > 0).all() and (x <= made + 1e-3).all()


def test_a_slow_worker_does_not_slow_the_others() -> None:
    for quorum, made in ((2, 40), (0, 2)):
        world = world_of(plain(quorum=quorum))
        steps(world, 2)
        for _ in range(40):
            steps(world, 0, 1)
        assert [world.actors[rank].steps for rank in (0, 1, 2)] == [made, made, 1]


def test_who_has_no_data_is_no_part_of_a_quorum() -> None:
    world = world_of(plain(quorum=2), workers=4)
    for rank in (2, 3):
        world.tell(rank, Ended())
    world.step = lambda actor: 0 if actor.rank in (2, 3) else marks(actor)
    for _ in range(4):
        steps(world, 2, 3, 0)
    assert world.actors[0].steps == 2 and not world.actors[0].proceed, "it waits for the other one that trains"
    for _ in range(2):
        steps(world, 1)
    assert world.actors[0].proceed


def test_the_grace_is_as_long_as_the_coordinator_can_do_without() -> None:
    """Overlapped by two steps: the coordinator closes with the quorum when it needs the result, and not before."""
    method = DiLoCo(every=6, overlap=2, quorum=2, outer_rate=1.0, outer_momentum=0.0, mixing=0.0)
    for third, rounds in ((False, 1), (True, 0)):
        world = world_of(method)
        for _ in range(6):
            steps(world, 0, 1)
        assert not world.actors[0].method_state.rounds
        for _ in range(6 if third else 0):
            steps(world, 2)
        assert world.actors[1].method_state.group.done == third, "as soon as all are there"
        steps(world, 0)
        assert third or not world.actors[1].method_state.group.done
        steps(world, 0)
        assert third or world.actors[1].method_state.group.done, "now it needs the result"
        assert rounds == 0 or world.actors[0].method_state.rounds == rounds


def test_the_next_rank_collects_when_the_coordinator_dies() -> None:
    world = world_of(plain(), workers=4)
    for _ in range(2):
        steps(world, 0, 1, 2)
    world.kill(0)
    for _ in range(4):
        steps(world, 1, 2)
    assert min(world.actors[rank].steps for rank in (1, 2)) >= 4
    world.finish()
    assert world.spread() == 0.0


def test_the_last_rounds_are_of_all() -> None:
    world = world_of(plain(quorum=1))
    steps(world, 0, 1, 2)
    for rank in (0, 1):
        world.tell(rank, Draining())
    for _ in range(5):
        steps(world, 0, 1)
    assert not any(world.actors[rank].finished for rank in (0, 1))
    world.finish()
    assert world.spread() == 0.0 and (world.vectors()[0][:3] > 0).all()


@pytest.mark.parametrize("given", ["quorum=-1", "quorum=2,delayed=true", "quorum=2,robust=median", "quorum=2,eager=true"])
def test_settings_that_cannot_be_are_refused(given: str) -> None:
    with pytest.raises(Misuse, match="diloco"):
        parse(f"diloco:{given}")
