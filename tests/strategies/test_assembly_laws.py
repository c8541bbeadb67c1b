"""Views that workers elect: no round is made twice, whatever happens, and a majority that is together goes on."""

from __future__ import annotations

from random import Random

import pytest
from assembly_world import BEAT_S, World
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.messages import MOST_VIEWS, Presence, View
from taut.errors import MalformedMessage
from taut.strategies.assembly import Assembly

STEPS = 250


def _something(world: World, random: Random, sides: dict[int, int]) -> None:
    """One event, at random. ``sides``: of a cut that comes and goes; the supervisor is on one of them."""
    living = [rank for rank in world.workers if rank not in world.dead and world.workers[rank].assembly.views]
    what = random.random()
    if what < 0.4 and world.mail:
        _post_one(world, random, sides)
    elif what < 0.6 and living:
        rank = random.choice(living)
        world.tick(rank, alone=sides.get(rank, 0) != sides.get(-1, 0) or random.random() < 0.3)
    elif what < 0.7 and living:
        world.beat(random.choice(living))
    elif what < 0.8 and living:
        world.make_round(world.workers[random.choice(living)].assembly.view)
    elif what < 0.86:
        for _ in range(random.randint(1, 12)):
            _half_second(world, random, sides, living)
    elif what < 0.9:
        members = sorted(world.supervisor.members)
        cut = {rank for rank in members if sides.get(rank, 0) != sides.get(-1, 0)}
        world.give_up(random.choice([cut, set(random.sample(members, random.randint(1, len(members))))]))
    elif what < 0.95:
        sides.clear()
        if random.random() < 0.8:
            sides.update({rank: random.randint(0, 1) for rank in (*world.workers, -1)})
    elif what < 0.97 and len(world.workers) < 9:
        world.admit()
    elif what < 0.98 and len(living) > 2:
        world.end(random.choice(living))


def _post_one(world: World, random: Random, sides: dict[int, int]) -> None:
    at = random.randrange(min(len(world.mail), 12))
    sender, to, _ = world.mail[at]
    if sides.get(sender, 0) != sides.get(to, 0) or random.random() < 0.1:
        del world.mail[at]
    else:
        world.deliver(at, keep=random.random() < 0.1)


def _half_second(world: World, random: Random, sides: dict[int, int], living: list[int]) -> None:
    """In which nothing happens to the network."""
    world.now += BEAT_S
    for rank in living:
        world.tick(rank, alone=sides.get(rank, 0) != sides.get(-1, 0))
    for _ in range(len(world.mail)):
        if world.mail and random.random() < 0.9:
            _post_one(world, random, sides)


@given(workers=st.integers(2, 6), seed=st.integers(0, 2**32))
@settings(max_examples=120, deadline=None)
def test_no_round_is_made_twice(workers: int, seed: int) -> None:
    world, random, sides = World(workers, seed), Random(seed), dict[int, int]()
    for _ in range(STEPS):
        _something(world, random, sides)


def _go(world: World, together: set[int], beats: int) -> int:
    """These alone are heard, by each other; how many rounds they make."""
    made = world.top
    for _ in range(beats):
        world.now += BEAT_S
        for rank in sorted(together):
            world.tick(rank, alone=True)
        while world.mail:
            sender, to, _ = world.mail[0]
            if {sender, to} <= together:
                world.deliver(0)
            else:
                del world.mail[0]
        for view in [world.workers[rank].assembly.view for rank in sorted(together)]:
            if set(view.members) <= together:
                world.make_round(view)
    return world.top - made


@given(workers=st.integers(2, 7), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_majority_that_is_together_goes_on_and_a_minority_does_not(workers: int, seed: int) -> None:
    world, random = World(workers, seed), Random(seed)
    together = set(world.workers)
    assert _go(world, together, 2) > 0
    while len(together) > 1:
        stay = set(random.sample(sorted(together), random.randint(1, len(together) - 1)))
        rest = set(world.workers) - stay
        if 2 * len(stay) <= len(together):
            assert _go(world, stay, 40) == 0
            break
        assert _go(world, stay, 40) > 0
        assert all(world.workers[rank].assembly.view.members == sorted(stay) for rank in stay)
        assert _go(world, rest, 40) == 0
        together = stay


def test_two_halves_wait_and_go_on_when_they_are_together_again() -> None:
    world = World(4, 0)
    assert _go(world, {0, 1, 2, 3}, 2) > 0
    assert _go(world, {0, 1}, 40) == _go(world, {2, 3}, 40) == 0
    assert _go(world, {0, 1, 2, 3}, 4) > 0
    assert all(worker.assembly.view.number == 0 for worker in world.workers.values())


def test_newcomers_do_not_outvote_those_who_have_not_met_them() -> None:
    world = World(4, 0)
    assert _go(world, {0, 1, 2, 3}, 2) > 0
    for _ in range(3):
        world.admit()  # on the side of the supervisor and of worker 3
    world.give_up({0, 1, 2})
    assert world.supervisor.members >= {0, 1, 2}
    world.mail = [each for each in world.mail if each[1] not in (0, 1, 2)]
    while world.mail:
        world.deliver(0)
    assert _go(world, {3, 4, 5, 6}, 40) == 0
    assert _go(world, {0, 1, 2}, 40) > 0
    world.beat(0)
    world.deliver(len(world.mail) - 1)
    assert (world.supervisor.members, world.supervisor.view) == ({0, 1, 2}, 1)


def test_a_supervisor_that_is_heard_is_left_to_decide() -> None:
    world = World(4, 0)
    assert _go(world, {0, 1, 2, 3}, 2) > 0
    for _ in range(60):
        world.now += BEAT_S
        for rank in (0, 1, 2):
            world.tick(rank, alone=rank != 1)
        while world.mail:
            to = world.mail[0][1]
            if to in (0, 1, 2):
                world.deliver(0)
            else:
                del world.mail[0]
    assert all(world.workers[rank].assembly.view.number == 0 for rank in (0, 1, 2))


def test_a_worker_with_more_views_than_it_can_tell_does_not_vote() -> None:
    assembly = Assembly(0)
    for version in range(1, MOST_VIEWS + 3):
        assembly.placed(View(0, version, [0, 1, 2, version + 10]))
    assert len(assembly.word().views) == MOST_VIEWS
    asked = Presence(1, 1, [0, 1], [assembly.view])
    assembly.tick(0.0, True, True, [500] * 8)
    assert not assembly.heard(1, asked, 0.0).tells
    assembly.agreed(assembly.view.stamp)
    assert assembly.heard(1, asked, 0.0).tells


@pytest.mark.parametrize(
    "word",
    [
        Presence(1, 1, [0, 1], [View(1, 3, [0, 1]), View(0, 9, [0, 1])]),
        Presence(1, 1, [0, 1], [View(0, 3, [0, 0, 1])]),
        Presence(1, 2, [0, 1], [View(0, 3, [0, 1])]),
    ],
)
def test_words_that_make_no_sense_are_refused(word: Presence) -> None:
    assembly = Assembly(0)
    assembly.placed(View(0, 3, [0, 1, 2]))
    with pytest.raises(MalformedMessage):
        assembly.heard(1, word, 0.0)
