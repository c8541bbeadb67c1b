"""Relayed async: every update reaches everybody once, merged on the way; replicas end alike whatever happens."""

from __future__ import annotations

import contextlib
import hashlib
import random

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.events import Ended
from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.api import Draining, Heard, Stepped, Tell
from taut.strategies.delivery.payload_batch import MANY, PayloadBatch, bind, unbind
from taut.strategies.registry import on_topology, parse
from taut.strategies.tree.relay import Relay
from taut.testing.worlds.codec_actor import CodecActor, with_codec
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

SIZE = 96
FIXED = "tether:slack=2^-4"  # so that the first steps are sent
TOPOLOGIES = ("ring", "line", "star", "tree", "torus", "hypercube", "exponential", "complete")


def world_of(
    workers: int, topology: str, seed: int, codec: str = "tether:slack=2^-4", lossy: bool = False
) -> MethodWorld:
    start = np.random.default_rng(seed).normal(0, 0.1, SIZE).astype(np.float32)
    noise = np.random.default_rng(seed + 1)

    def step(actor: Actor) -> int:
        actor.x += noise.normal(0, 0.02, SIZE).astype(np.float32)
        return 1

    speeds = [0.2 + random.Random(seed + rank).random() for rank in range(workers)]
    return MethodWorld(
        Relay(),
        [start.copy() for _ in range(workers)],
        topology=topology,
        seed=seed,
        step=step,
        lossy=lossy,
        speeds=speeds,
        actor=with_codec(codec, workers),
    )


def hashes(world: MethodWorld) -> set[str]:
    found = set()
    for actor in world.actors.values():
        assert isinstance(actor, CodecActor)
        found.add(hashlib.sha256(actor.shared.tobytes()).hexdigest())
    return found


def figures(world: MethodWorld, name: str) -> list[float]:
    return [world.method.figures(actor.method_state)[name] for actor in world.actors.values()]


@given(
    seed=st.integers(0, 2**31),
    workers=st.integers(1, 8),
    topology=st.sampled_from(TOPOLOGIES),
    codec=st.sampled_from(["tether", "threshold:tau=2^-6"]),
    lossy=st.booleans(),
)
@settings(max_examples=some(40), deadline=None)
def test_drained_replicas_are_identical(seed: int, workers: int, topology: str, codec: str, lossy: bool) -> None:
    world = world_of(workers, topology, seed, codec, lossy)
    world.run(15)
    world.finish()
    assert len(hashes(world)) == 1
    assert figures(world, "repaired") == [0.0] * workers, "nothing was lost, so nothing is to be mended"
    assert len(set(figures(world, "updates_included"))) == 1
    assert workers == 1 or figures(world, "updates_included")[0] > workers


@given(seed=st.integers(0, 2**31), topology=st.sampled_from(TOPOLOGIES))
@settings(max_examples=some(40), deadline=None)
def test_deaths_and_joins_at_any_moment(seed: int, topology: str) -> None:
    choose = random.Random(seed)
    world = world_of(choose.randint(2, 6), topology, seed, lossy=choose.random() < 0.3)
    for _ in range(choose.randint(1, 4)):
        for _ in range(choose.randint(0, 40)):
            world._happen(sorted(world.actors))
        if len(world.actors) > 1 and choose.random() < 0.6:
            world.kill(choose.choice(sorted(world.actors)))
        else:
            world.join()
    world.run(3)
    end_with_changes(world, choose)
    assert len(hashes(world)) == 1


def end_with_changes(world: MethodWorld, choose: random.Random) -> None:
    """The end, with somebody dying or joining in the midst of it."""
    for rank in sorted(world.actors):
        world.actors[rank].ended = True
        world.tell(rank, Ended())
    changes = choose.randint(0, 2)
    for rank in sorted(world.actors):
        world.tell(rank, Draining())
        for _ in range(choose.randint(0, 5)):
            world.deliver()
    for _ in range(changes):
        for _ in range(choose.randint(0, 30)):
            world.deliver()
        if len(world.actors) > 1 and choose.random() < 0.6:
            world.kill(choose.choice(sorted(world.actors)))
        else:
            rank = world.join()
            world.actors[rank].ended = True
            world.tell(rank, Draining())
    world.finish()


def test_a_relay_that_dies_with_updates_is_made_up_for() -> None:
    """0 - 1 - 2: worker 1 has heard worker 2's update and dies before worker 0 has."""
    world = world_of(3, "line", seed=3)
    world.run(10)
    world.actors[2].x += 1.0
    world.take_step(2)
    item = world.queues[(2, 1)].popleft()
    world.tell(1, Heard(2, item.note, item.payload))
    world.kill(1)
    world._quiet()
    assert len(hashes(world)) == 2, "the replicas differ"
    lowest = world.actors[0]
    world.finish()
    assert len(hashes(world)) == 1
    assert lowest.method_state.ending.repaired == 0  # the lowest rank's weights are what all take
    assert figures(world, "repaired") == [0.0, 1.0]


def test_dense_rounds_and_still_ends_alike() -> None:
    world = world_of(5, "ring", seed=1, codec="dense")
    world.run(10)
    world.finish()
    assert len(hashes(world)) == 1


def test_a_busy_edge_merges_what_waits() -> None:
    world = world_of(2, "line", seed=5)
    for _ in range(30):
        world.actors[0].x += np.float32(0.02)
        world.take_step(0)
    kinds = [item.note.kind for item in world.queues[(0, 1)]]
    assert kinds == ["tree", "update"], "one message is under way, whatever comes after it"
    made = world.actors[0].method_state.included
    assert made > 10
    world._quiet()
    assert world.messages < 8
    assert world.actors[1].method_state.included == made
    world.finish()
    assert len(hashes(world)) == 1


def test_a_relay_passes_on_while_it_trains() -> None:
    world = world_of(3, "line", seed=7)
    world.actors[0].x += 1.0
    world.take_step(0)
    before = world.actors[1].x.copy()
    world._quiet()
    assert np.array_equal(world.actors[1].x, before), "x belongs to the training thread"
    assert world.actors[1].method_state.arrivals
    assert world.actors[2].method_state.arrivals, "worker 1 made no step, and yet worker 2 has the update"


def test_a_broken_update_is_refused_and_the_edge_stays_usable() -> None:
    world = world_of(2, "line", seed=9)
    state = world.actors[1].method_state
    actions = world.method.on(state, Heard(0, Note("update", state.tree.key, 1, [1.0, 0.0]), b"rubbish"), 0.0)
    assert [action.note.kind for action in actions if isinstance(action, Tell)] == ["got"]
    assert state.refused == 1
    world.method.on(state, Stepped(1), 0.0)


@given(message=st.binary(max_size=40), payloads=st.lists(st.binary(max_size=9), max_size=5))
@settings(max_examples=100, deadline=None)
def test_sheaves_are_what_they_were_and_rubbish_is_refused(message: bytes, payloads: list[bytes]) -> None:
    assert unbind(bind(payloads)) == payloads
    with contextlib.suppress(MalformedMessage):
        assert bind(unbind(message)) == message


@given(sizes=st.lists(st.integers(1, 50), max_size=60), limit=st.integers(1, 100))
@settings(max_examples=60, deadline=None)
def test_a_sheaf_stays_small(sizes: list[int], limit: int) -> None:
    """Adding up gives the largest of the sizes here, as it would of updates that overlap."""
    batch = PayloadBatch(lambda payloads: max(payloads, key=len), limit)
    for size in sizes:
        batch.put(bytes(size), 1)
        assert len(batch.payloads) < MANY
        assert batch.nbytes == sum(map(len, batch.payloads)) <= max(limit, 100) + 50
    assert batch.count == len(sizes)


def test_async_is_relayed_where_the_topology_is_not_complete() -> None:
    assert on_topology(parse("async"), "ring").name == "relay"
    assert on_topology(parse("async"), "complete").name == "async"
    assert str(on_topology(parse("ssp:3"), "ring")) == "relay:slack=3"


@pytest.mark.parametrize("workers", [2, 8])
def test_staleness_grows_with_the_distance(workers: int) -> None:
    world = world_of(workers, "line", seed=2)
    world.run(80)
    assert all(0.4 < stale < 4 * workers for stale in figures(world, "staleness"))
    ends, middle = world.actors[0].method_state, world.actors[workers // 2].method_state
    assert ends.tree.distance >= middle.tree.distance
