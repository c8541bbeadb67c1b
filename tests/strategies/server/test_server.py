"""The parameter server: nobody waits, every push counts once, staleness is dealt with as said, and all end alike."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.events import Ended
from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse, PeerLost
from taut.strategies.api import Draining, Heard
from taut.strategies.registry import parse
from taut.strategies.server.server import Server
from taut.strategies.server.shard import Shard, holder
from taut.strategies.server.staleness import KINDS, Lateness, Remedy
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

SIZE = 12


def add_own(actor: Actor) -> int:
    """Each worker adds 1 at the element of its own rank: the sum tells whose steps have been counted, and how often."""
    actor.x[actor.rank % SIZE] += 1.0
    return 1


def world_of(method: Server, workers: int, seed: int = 0, lossy: bool = False) -> MethodWorld:
    zeros = [np.zeros(SIZE, np.float32) for _ in range(workers)]
    return MethodWorld(method, zeros, topology="star", seed=seed, step=add_own, lossy=lossy)


def assert_alike(world: MethodWorld) -> None:
    assert len({actor.x.tobytes() for actor in world.actors.values()}) == 1


@given(
    seed=st.integers(0, 2**31),
    workers=st.integers(1, 5),
    shards=st.integers(1, 4),
    push=st.integers(1, 4),
    pull=st.integers(1, 4),
    lossy=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_every_step_counts_once_and_all_end_alike(
    seed: int, workers: int, shards: int, push: int, pull: int, lossy: bool
) -> None:
    world = world_of(Server(shards=shards, push=push, pull=pull, scale=1.0, staleness="none"), workers, seed, lossy)
    world.run(11)
    made = [actor.steps for _, actor in sorted(world.actors.items())]
    world.finish()
    assert_alike(world)
    assert world.actors[0].x[:workers].tolist() == [float(steps) for steps in made]


@given(seed=st.integers(0, 2**31), shards=st.integers(1, 3), staleness=st.sampled_from(KINDS))
@settings(max_examples=40, deadline=None)
def test_deaths_and_joins_at_any_moment(seed: int, shards: int, staleness: str) -> None:
    choose = random.Random(seed)
    method = Server(shards=shards, push=choose.randint(1, 3), pull=choose.randint(1, 3), staleness=staleness)
    world = world_of(method, choose.randint(2, 5), seed, lossy=choose.random() < 0.3)

    def change() -> None:
        if len(world.actors) > 1 and choose.random() < 0.6:
            world.kill(choose.choice(sorted(world.actors)))
        else:
            world.join()

    for _ in range(choose.randint(0, 3)):
        for _ in range(choose.randint(0, 40)):
            world._happen(sorted(world.actors))
        change()
    world.run(2)
    for rank in sorted(world.actors):
        world.actors[rank].ended = True
        world.tell(rank, Ended())
    for rank in sorted(world.actors):
        world.tell(rank, Draining())
        for _ in range(choose.randint(0, 4)):
            world.deliver()
    for _ in range(choose.randint(0, 2)):
        for _ in range(choose.randint(0, 20)):
            world.deliver()
        change()
    world.finish()
    assert_alike(world)
    assert np.isfinite(world.actors[min(world.actors)].x).all()


def test_nobody_ever_waits() -> None:
    world = world_of(Server(), 3)
    for _ in range(50):
        world.take_step(2)  # and nothing is delivered
    assert world.actors[2].steps == 50


def test_pushes_and_pulls_keep_their_periods() -> None:
    world = world_of(Server(push=3, pull=5), 2)
    for _ in range(30):
        world.take_step(1)
        world._quiet()
    state = world.actors[1].method_state
    assert (state.pushes, state.pulls) == (10, 5)  # the sixth answer is here and not included yet
    assert state.pulling[0].answer is not None


def test_a_pull_leaves_what_is_not_pushed_yet() -> None:
    world = world_of(Server(push=4, pull=1, scale=1.0, staleness="none"), 2)
    for _ in range(3):
        world.take_step(1)  # not pushed yet
    world.actors[0].method_state.shards[0].w[:] = 7.0
    for _ in range(2):
        world._quiet()
        world.take_step(1)
    assert world.actors[1].x.tolist() == [7.0, 12.0] + [7.0] * (SIZE - 2)


def test_a_server_trains_too_and_sees_the_others() -> None:
    world = world_of(Server(scale=1.0, staleness="none"), 2)
    for _ in range(6):
        world.take_step(1)
        world._quiet()
    for _ in range(2):
        world.take_step(0)
    assert world.actors[0].x[:2].tolist() == [2.0, 6.0]


def test_the_next_worker_takes_over_from_its_own_copy() -> None:
    world = world_of(Server(shards=2, scale=1.0, staleness="none"), 4)
    for _ in range(40):
        world._happen([0, 1, 2, 3])
    world._quiet()
    for rank in range(4):
        world.take_step(rank)
    world.kill(0)
    assert {tuple(actor.method_state.holders) for actor in world.actors.values()} == {(2, 1)}
    world.run(5)
    world.finish()
    assert_alike(world)
    assert world.actors[3].x[3] >= 5.0
    assert all(world.method.figures(actor.method_state)["elections"] == 1.0 for actor in world.actors.values())


def test_a_server_that_dies_may_end_the_run() -> None:
    world = world_of(Server(on_death="stop"), 3)
    world.run(3)
    with pytest.raises(PeerLost, match=r"worker 0.*shard 0.*on_death=stop"):
        world.kill(0)
    world = world_of(Server(on_death="stop"), 3)
    world.kill(2)  # it held nothing
    world.run(3)
    world.finish()
    assert_alike(world)


def test_a_shard_goes_to_a_newcomer_that_is_entitled_to_it_with_all_that_is_in_it() -> None:
    world = world_of(Server(shards=2, scale=1.0, staleness="none"), 3)
    world.kill(1)
    world.run(4)
    assert world.actors[0].method_state.shards.keys() == {0, 1}
    rank = world.join()
    assert rank == 3
    world._quiet()
    assert world.actors[0].method_state.shards.keys() == {0}
    world.finish()
    assert_alike(world)
    assert world.actors[0].x[0] == world.actors[0].steps


@given(
    shards=st.integers(1, 5),
    members=st.sets(st.integers(0, 20), min_size=1),
    gone=st.integers(0, 20),
    new=st.integers(21, 30),
)
@settings(max_examples=100, deadline=None)
def test_shards_move_only_when_they_must(shards: int, members: set[int], gone: int, new: int) -> None:
    for shard in range(shards):
        before = holder(shard, shards, sorted(members))
        left = members - {gone}
        if left and before != gone and before % shards == shard:
            assert holder(shard, shards, sorted(left)) == before
            assert holder(shard, shards, sorted(members | {new})) == before


# --------------------------------------------------------------------------------------------------- staleness

VECTORS = st.lists(st.floats(-2, 2, width=32), min_size=4, max_size=4).map(lambda v: np.array(v, np.float32))


@given(change=VECTORS, now=VECTORS, then=VECTORS, others=st.integers(0, 9), steps=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_each_remedy_is_its_equation(
    change: np.ndarray, now: np.ndarray, then: np.ndarray, others: int, steps: int
) -> None:
    late = Lateness(others, 3, steps, 0.1, then)

    def made(kind: str, lambda0: float = 0.0) -> np.ndarray:
        return Remedy(kind, lambda0).apply(change, now, late)

    assert np.array_equal(made("none"), change)
    assert np.allclose(made("rate"), change / (1 + others / 3))
    assert np.allclose(made("agn"), change / steps)
    rate = 0.1 * steps
    gradient = -change.astype(np.float64) / rate
    compensated = gradient + 0.3 * gradient * gradient * (now.astype(np.float64) - then)
    assert np.allclose(made("dc-constant", 0.3), -rate * compensated, rtol=1e-4, atol=1e-4)
    # At the first push the mean square is the square itself: lambda0 * g^2 / |g|, whatever the rate.
    adaptive = change - 2.0 * np.abs(change) * (now - then)
    assert np.allclose(made("dc"), adaptive, rtol=1e-3, atol=1e-4)


def test_delay_compensation_brings_a_late_gradient_nearer() -> None:
    """f(w) = w^4 / 4: the gradient at 1.0 arrives when the weights are at 0.8; compensated, it is nearer to it."""
    then, now, rate = np.array([1.0], np.float32), np.array([0.8], np.float32), 0.1
    change, true = -rate * then**3, -rate * now**3
    plain = Remedy("none").apply(change, now, Lateness(1, 1, 1, rate, then))
    better = Remedy("dc-constant", 1.0).apply(change, now, Lateness(1, 1, 1, rate, then))
    assert abs(better - true) < 0.7 * abs(plain - true)


def test_staleness_counts_the_pushes_of_others_since_the_pull() -> None:
    shard = Shard(np.zeros(1, np.float32), Remedy("rate"))
    one = np.ones(1, np.float32)
    for worker in (0, 1):
        shard.pull(worker)
    for _ in range(3):
        shard.push(0, one, 2, 1, 0.1)
    assert shard.w[0] == 3.0, "a worker's own pushes do not make it stale"
    shard.push(1, one, 2, 1, 0.1)
    assert shard.w[0] == pytest.approx(3.0 + 1 / (1 + 3 / 2))
    shard.pull(1)
    shard.push(1, one, 2, 1, 0.1)
    assert shard.w[0] == pytest.approx(4.0 + 1 / (1 + 3 / 2))


def test_late_pushes_make_less_of_a_move() -> None:
    plain, careful = (world_of(Server(staleness=kind), 4, seed=5) for kind in ("none", "rate"))
    for world in (plain, careful):
        world.run(20)
        world.finish()
    assert 0.2 * plain.actors[0].x.sum() < careful.actors[0].x.sum() < plain.actors[0].x.sum()


# -------------------------------------------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("server:shards=0", "shards=0"),
        ("server:push=0", "push=0"),
        ("server:staleness=dx", "none, rate, dc, dc-constant, agn"),
        ("server:on_death=panic", "one of elect, stop"),
        ("server:lambda0=-1", "default"),
        ("server:scale=nan", "scale=nan"),
    ],
)
def test_misuse_is_told(spec: str, told: str) -> None:
    with pytest.raises(Misuse, match=told):
        parse(spec)


@pytest.mark.parametrize(
    ("note", "payload"), [(Note("push", 1, 0), b"123"), (Note("push", 1, 0), bytes(8)), (Note("pull", 0, 9), b"")]
)
def test_broken_messages_change_nothing(note: Note, payload: bytes) -> None:
    world = world_of(Server(), 2)
    state = world.actors[0].method_state
    with pytest.raises(MalformedMessage):
        world.method.on(state, Heard(1, note, payload), 0.0)
    assert not state.shards[0].w.any()
    assert state.shards[0].version == 0
