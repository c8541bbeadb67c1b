"""NoLoCo: random pairs, and momentum towards the pair's mean; the mean over all moves as if by an all-reduce."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.events import Heard
from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse
from taut.strategies import parse
from taut.strategies.compatibility import combine
from taut.strategies.gossip.noloco import NoLoCo, pairs
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

SIZE = 6


def change_of(rank: int, step: int) -> np.ndarray:
    return np.random.default_rng(100 * rank + step).normal(size=SIZE).astype(np.float32)


def moves(actor: Actor) -> int:
    actor.x += change_of(actor.rank, actor.steps)
    return 1 + actor.rank


def starts(workers: int, seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).normal(size=(workers, SIZE)).astype(np.float32))


@given(st.sets(st.integers(0, 99), min_size=1, max_size=20), st.integers(0, 10**6), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_everybody_has_one_partner_but_the_last_of_an_odd_number(members: set[int], round: int, seed: int) -> None:
    found = pairs(tuple(sorted(members)), round, seed)
    assert all(found[theirs] == mine != theirs for mine, theirs in found.items())
    assert len(found) == len(members) - len(members) % 2 and found.keys() <= members


def test_in_time_every_two_are_partners() -> None:
    met = {pair for round in range(100) for pair in pairs(tuple(range(6)), round, 0).items()}
    assert len(met) == 6 * 5


@given(
    st.integers(2, 5),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.7, 1.0]),
    st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_it_is_its_equation(workers: int, every: int, rounds: int, alpha: float, eta: float, lossy: bool) -> None:
    method = NoLoCo(every=every, outer_momentum=alpha, outer_rate=eta, seed=3)
    world = MethodWorld(method, starts(workers), step=moves, lossy=lossy, seed=1)
    world.run(every * rounds)
    phi, delta = [x.astype(np.float64) for x in starts(workers)], [np.zeros(SIZE) for _ in range(workers)]
    for round in range(rounds):
        partner = pairs(tuple(range(workers)), round, 3)
        moved = [
            phi[rank] + sum(change_of(rank, step) for step in range(every * round, every * (round + 1)))
            for rank in range(workers)
        ]
        for rank in range(workers):
            mean = (moved[rank] + moved[partner.get(rank, rank)]) / 2
            delta[rank] = alpha * delta[rank] + eta * (mean - phi[rank])
        phi = [one + two for one, two in zip(phi, delta, strict=True)]
    for x, expected in zip(world.vectors(), phi, strict=True):
        np.testing.assert_allclose(x, expected, rtol=1e-4, atol=1e-4)


@given(st.integers(1, 9), st.integers(0, 10**6), st.booleans())
@settings(max_examples=20, deadline=None)
def test_the_mean_moves_as_by_one_momentum_for_all(workers: int, seed: int, lossy: bool) -> None:
    """Pulls within a pair cancel: the mean of all phi obeys diloco's equation, with heavy-ball momentum."""
    world = MethodWorld(NoLoCo(every=2), starts(workers, seed), step=moves, lossy=lossy, seed=seed)
    mean, momentum = np.mean(starts(workers, seed), axis=0, dtype=np.float64), np.zeros(SIZE)
    for round in range(4):
        world.run(2)
        change = np.mean(
            [change_of(rank, step) for rank in range(workers) for step in (2 * round, 2 * round + 1)], axis=0
        )
        momentum = 0.5 * momentum + 0.7 * 2 * change
        mean = mean + momentum
        np.testing.assert_allclose(np.mean(world.vectors(), axis=0), mean, rtol=1e-3, atol=1e-3)


def test_without_training_replicas_come_together_and_the_mean_stays() -> None:
    vectors = starts(8)
    world = MethodWorld(NoLoCo(every=1), vectors, step=lambda actor: 1)
    before = world.spread()
    world.run(60)
    assert world.spread() < 1e-3 * before
    np.testing.assert_allclose(np.mean(world.vectors(), axis=0), np.mean(vectors, axis=0), atol=1e-5)


def test_who_has_no_data_averages_and_keeps_its_momentum() -> None:
    world = MethodWorld(NoLoCo(every=1), starts(2), step=moves)
    world.run(3)
    world.step = lambda actor: 0
    kept = [actor.method_state.momentum.copy() for actor in world.actors.values()]
    world.run(4)
    first, second = world.vectors()
    assert np.array_equal(first, second), "a pair without training has its mean"
    assert all(
        np.array_equal(one, actor.method_state.momentum) for one, actor in zip(kept, world.actors.values(), strict=True)
    )


def test_each_round_costs_one_message_whatever_the_number_of_workers() -> None:
    for workers in (4, 12):
        world = MethodWorld(NoLoCo(every=4), starts(workers), step=moves)
        world.run(40)
        sent = sum(actor.method_state.rounds for actor in world.actors.values())
        assert sent == 10 * workers
        assert world.messages == sent and world.sent_nbytes == 4 * SIZE * sent


@pytest.mark.parametrize("numbers", [[], [1.0, 2.0], [-1.0], [float("nan")]])
def test_messages_that_make_no_sense_are_refused(numbers: list[float]) -> None:
    world = MethodWorld(NoLoCo(), starts(2))
    state = world.actors[0].method_state
    with pytest.raises(MalformedMessage):
        NoLoCo().check(state, Heard(1, Note("x", 0, 0, numbers), bytes(4 * SIZE)))


def test_it_ends_with_the_average_of_all() -> None:
    assert combine("noloco").finish == "average"


@pytest.mark.parametrize("given", ["every=0", "outer_momentum=1", "outer_rate=0.4", "outer_rate=1.6", "seed=-1"])
def test_settings_that_cannot_be_are_refused(given: str) -> None:
    with pytest.raises(Misuse, match=given.partition("=")[0]):
        parse(f"noloco:{given}")
