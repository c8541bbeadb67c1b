"""Gossip to one that cannot be heard: a few messages wait, the rest is one; when it is heard, nothing is missing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.api import Heard, Refuse, Tell
from taut.strategies.delivery.flow_control import MOST_UNSEEN, SEEN_EVERY, FlowControl
from taut.strategies.gossip.gossip import Gossip
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

SIZE, WORKERS = 8, 4


def add_own(actor: Actor) -> int:
    """Steps of a worker are counted at its own element."""
    actor.x[actor.rank] += np.float32(0.25)
    return 1


def cut(world: MethodWorld, away: int, events: int) -> int:
    """Nothing gets to ``away``, nor from it, and all train on; the most bytes that ever waited between two workers."""
    most = 0
    for _ in range(events):
        pairs = [pair for pair, queue in sorted(world.queues.items()) if queue and away not in pair]
        if pairs and world.random.random() < 0.7:
            sender, to = world.random.choice(pairs)
            world._hear(to, world.queues[(sender, to)].popleft())
        else:
            rank = world.random.randrange(WORKERS)
            world.catch_up(rank)
            world.take_step(rank)
        under_way = [sum(len(item.payload) for item in queue) for pair, queue in world.queues.items() if away in pair]
        kept = [w.updates.nbytes + len(w.weights or b"") for w in windows_of(world)]
        most = max([most, *under_way, *kept])
    return most


def windows_of(world: MethodWorld) -> list:
    return [w for actor in world.actors.values() for w in actor.method_state.flow._to.values()]


@given(seed=st.integers(0, 2**31), away=st.integers(0, 3), events=st.integers(100, 400))
@settings(max_examples=15, deadline=None)
def test_each_update_counts_once_at_each_neighbour_however_long_it_was_silent(seed: int, away: int, events: int) -> None:
    start = [np.zeros(SIZE, np.float32)] * WORKERS
    world = MethodWorld(Gossip(mix=0), start, topology="ring", seed=seed, step=add_own)
    cut(world, away, events)
    world.run(3)
    world.finish()
    for rank, each in world.actors.items():
        for other, steps in ((one, world.actors[one].steps) for one in [rank, *world.membership(rank).neighbours()]):
            assert each.x[other] == 0.25 * steps


@pytest.mark.parametrize("mix", [0, 1, 3])
def test_what_is_kept_for_a_silent_one_does_not_grow_with_its_silence(mix: int) -> None:
    world = MethodWorld(Gossip(mix=mix), [np.zeros(SIZE, np.float32)] * WORKERS, topology="ring", seed=3, step=add_own)
    first, later = cut(world, 2, 200), cut(world, 2, 1200)
    assert later <= MOST_UNSEEN * 4 * SIZE and later <= 1.5 * first
    assert sum(actor.method_state.flow.merged for actor in world.actors.values()) > 300
    world.run(2)
    world.finish()


@given(st.lists(st.sampled_from(["update", "weights", "deliver"]), max_size=80))
def test_updates_add_up_and_the_newest_weights_replace_older_ones(history: list[str]) -> None:
    sender = FlowControl(lambda payloads: bytes([sum(map(sum, payloads)) % 256]), limit_nbytes=4)
    receiver = FlowControl(b"".join, limit_nbytes=4)
    under_way: list[Tell] = []
    made = included = newest = 0
    last = b""

    def deliver() -> None:
        nonlocal included, last
        tell = under_way.pop(0)
        included += sum(tell.payload) if tell.note.kind == "update" else 0
        last = bytes(tell.payload) if tell.note.kind == "weights" else last
        for answer in receiver.came(0):
            under_way.extend(sender.seen(1, answer.note.round))

    for number, event in enumerate(history):
        if event == "update":
            under_way += sender.update(1, b"\1")
            made += 1
        elif event == "weights":
            under_way += sender.weights(1, bytes([newest := number % 250 + 1]))
        elif under_way:
            deliver()
        assert len(under_way) <= MOST_UNSEEN + 1  # a catch-up is two messages
    under_way += sender.flush()
    while under_way:
        deliver()
    assert included == made and last == (bytes([newest]) if newest else b"")


def test_nobody_has_seen_what_was_not_sent() -> None:
    flow = FlowControl(b"".join, 4)
    flow.update(1, b"u")
    with pytest.raises(MalformedMessage, match="seen 2 messages, of 1"):
        flow.seen(1, 2)
    assert SEEN_EVERY <= MOST_UNSEEN


def test_what_is_refused_was_seen_all_the_same() -> None:
    world = MethodWorld(Gossip(), [np.zeros(SIZE, np.float32)] * 2, topology="ring", step=add_own)
    state = world.actors[0].method_state
    first = world.method.on(state, Heard(1, Note("weights"), b"123"), 0.0)
    second = world.method.on(state, Heard(1, Note("weights"), bytes(4 * SIZE)), 0.0)
    assert [type(one) for one in first] == [Refuse]
    assert [(one.to, one.note.kind, one.note.round) for one in second if isinstance(one, Tell)] == [(1, "seen", 2)]
