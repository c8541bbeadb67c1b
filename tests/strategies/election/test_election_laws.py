"""Views that workers elect: no round is made twice, whatever happens, and a majority that is together goes on."""

from __future__ import annotations

from random import Random

import pytest
from election_world import BEAT_S, World
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.messages import MOST_VIEWS, Presence, View
from taut.errors import MalformedMessage
from taut.strategies.election.election import Election

PHASES = 16


def _phase(world: World, random: Random) -> None:
    """Some seconds of one state of the network: who is cut off from whom, and how much is lost or comes late."""
    if random.random() < 0.15 and len(world.workers) < 8:
        world.admit()
    sides = {rank: int(random.random() < random.choice([0.0, 0.3, 0.5])) for rank in world.workers}
    sides[-1] = random.choice([0, 1, 2, 2])  # 2: the supervisor is heard by nobody
    loss, late = random.choice([0.0, 0.1, 0.4]), random.choice([0.0, 0.1, 0.5])
    if random.random() < 0.1 and len(world.workers) - len(world.dead) > 2:
        world.end(random.choice(sorted(world.workers.keys() - world.dead)))
    for _ in range(random.randint(1, 14)):
        living = [rank for rank in world.workers if rank not in world.dead and world.workers[rank].assembly.views]
        world.now += BEAT_S
        for rank in random.sample(living, len(living)):
            world.tick(rank, alone=sides[rank] != sides[-1] or random.random() < 0.2)
            if random.random() < 0.5:
                world.beat(rank)
        _deliver(world, random, sides, loss, late)
        for view in [world.workers[rank].assembly.view for rank in living]:
            world.make_round(view)
        if random.random() < 0.1:
            members = sorted(world.supervisor.members)
            cut = {rank for rank in members if sides[rank] != sides[-1]}
            world.give_up(random.choice([cut, set(random.sample(members, random.randint(1, len(members))))]))


def _deliver(world: World, random: Random, sides: dict[int, int], loss: float, late: float) -> None:
    """What there is, and what comes of it, in disorder. What is late, or cut off, may still come in a later phase."""
    kept = []
    for _ in range(200):
        if not world.mail:
            break
        at = random.randrange(min(len(world.mail), 4))
        sender, to, _ = each = world.mail[at]
        if sides[sender] != sides[to] or random.random() < late:
            del world.mail[at]
            kept += [each] if random.random() < 0.5 else []
        elif random.random() < loss:
            del world.mail[at]
        else:
            world.deliver(at, keep=random.random() < 0.05)
    world.mail += kept


@given(workers=st.integers(2, 6), seed=st.integers(0, 2**32))
@settings(max_examples=some(100), deadline=None)
def test_no_round_is_made_twice(workers: int, seed: int) -> None:
    world, random = World(workers, seed), Random(seed)
    for _ in range(PHASES):
        _phase(world, random)


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
@settings(max_examples=some(60), deadline=None)
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


def _asked(rank: int, members: list[int]) -> Election:
    """A worker that has agreed on these members with all, and has lost the supervisor."""
    assembly = Election(rank)
    assembly.entered(View(0, 1, members))
    assembly.agreed(1)
    assembly.tick(0.0, True, True, [500] * 64)
    return assembly


def test_a_vote_is_given_once_in_each_number() -> None:
    assembly, views = _asked(0, [0, 1, 2, 3]), [View(0, 1, [0, 1, 2, 3])]
    assert assembly.heard(1, Presence(4, 1, [0, 1, 2], views), 0.0).tells
    assert not assembly.heard(2, Presence(4, 2, [0, 1, 2], views), 0.0).tells
    elected = View(4, 1, [0, 1, 2], own=True)
    assert assembly.heard(1, Presence(4, -1, [], [elected]), 0.0).enter == elected
    assert assembly.heard(2, Presence(5, 2, [0, 1, 2], views), 0.0).tells
    assert assembly.heard(1, Presence(4, -1, [], [elected]), 0.0).enter is None


def test_a_vote_is_void_once_another_view_is_entered() -> None:
    assembly, views = _asked(0, [0, 1, 2, 3]), [View(0, 1, [0, 1, 2, 3])]
    assert assembly.heard(1, Presence(4, 1, [0, 1, 2], views), 0.0).tells
    assert assembly.voted
    assembly.entered(View(0, 2, [0, 1, 2]))
    assert not assembly.voted
    assert assembly.heard(1, Presence(4, -1, [], [View(4, 1, [0, 1, 2], own=True)]), 0.0).enter is None


@pytest.mark.parametrize(("more", "goes_on"), [([], True), ([View(2, 1, [2, 3, 4], own=True)], False)])
def test_each_view_of_each_voter_counts(more: list[View], goes_on: bool) -> None:
    everybody = [0, 1, 2, 3, 4]
    assembly, views = _asked(0, everybody), [View(0, 1, everybody)]
    entered = None
    for beat in range(1, 40):
        answers = [assembly.tick(0.5 * beat, True, True, [500] * 64)]
        for rank in (1, 2):
            mine = views + (more if rank == 2 else [])
            vote = Presence(assembly.number, 0 if assembly.candidate == 0 else -1, [], mine)
            answers.append(assembly.heard(rank, vote, 0.5 * beat))
        entered = entered or next((answer.enter for answer in answers if answer.enter is not None), None)
        if entered is not None:
            break
    assert (entered is not None and entered.members == [0, 1, 2]) == goes_on


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
    for rank in (0, 1):
        world.beat(rank)
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
    assembly = Election(0)
    for version in range(1, MOST_VIEWS + 3):
        assembly.entered(View(0, version, [0, 1, 2, version + 10]))
    assert len(assembly.presence().views) == MOST_VIEWS
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
    assembly = Election(0)
    assembly.entered(View(0, 3, [0, 1, 2]))
    with pytest.raises(MalformedMessage):
        assembly.heard(1, word, 0.0)
