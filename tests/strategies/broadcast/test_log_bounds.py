"""Logs stay bounded however long somebody is cut off, and a merged catch-up makes all equal again."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.events import Arrived, PeerGone, PeerJoined, Published, Send
from taut.core.messages import Report, Updates
from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.broadcast.log import Log
from taut.strategies.compatibility import default_topology
from taut.strategies.registry import parse
from taut.testing.checks.strategy_check import UpdateSet, World
from taut.testing.worlds.codec_actor import with_codec
from taut.testing.worlds.method_world import MethodWorld

RANGE = struct.Struct("<III")
BUDGET = 20 * RANGE.size
ROUNDS = 300


class Ranged(UpdateSet):
    """Payloads are ranges of update numbers. As with real updates, many merged are hardly larger than one."""

    @staticmethod
    def written(origin: int, number: int) -> bytes:
        return RANGE.pack(origin, number, number)

    @staticmethod
    def names(payload: bytes) -> Iterator[tuple[int, int]]:
        return ((origin, n) for origin, lo, hi in RANGE.iter_unpack(payload) for n in range(lo, hi + 1))


def join_ranges(payloads: Sequence[bytes]) -> bytes:
    ranges: list[list[int]] = []
    for origin, lo, hi in sorted(one for payload in payloads for one in RANGE.iter_unpack(payload)):
        if ranges and ranges[-1][0] == origin and ranges[-1][2] == lo - 1:
            ranges[-1][2] = hi
        else:
            ranges.append([origin, lo, hi])
    return b"".join(RANGE.pack(*one) for one in ranges)


class RangedWorld(World):
    kind = Ranged

    def everybody_trains(self, rounds: int) -> int:
        """All publish, and hear whom they can; the most bytes that somebody's logs had at any time."""
        most = 0
        for _ in range(rounds):
            everybody = sorted(self.live.keys() | self.given_up.keys())
            for rank in everybody:
                self.publish(rank)
            for _ in range(len(self.under_way)):
                self.deliver()
            for rank in everybody:
                self.take(rank)
            self.tick(0.06)
            held = [sum(log.nbytes for log in self.replica(rank).state.logs.values()) for rank in everybody]  # type: ignore[union-attr]
            most = max(most, *held)
        return most


def world_of(workers: int, seed: int) -> RangedWorld:
    strategy = Broadcast(merge=join_ranges, budget_nbytes=BUDGET, window_nbytes=8 * RANGE.size)
    return RangedWorld(strategy, workers, seed, loss=0.0, repeat=0.0)


@given(
    before=st.integers(0, 20),
    away=st.sets(st.integers(0, 4), min_size=1, max_size=3),
    given_up=st.booleans(),
    dies=st.sampled_from([None, 0, 1, 2, 3, 4]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=4, deadline=None)
def test_a_cut_of_hundreds_of_steps_costs_no_more_memory_than_a_short_one(before, away, given_up, dies, seed):
    """The half without the supervisor trains on; in the other one those away may be given up, or not: nobody is there to
    say so. When it heals, somebody may be dead whom the others hold updates of."""
    world = world_of(5, seed)
    world.everybody_trains(3 + before)
    for rank in away:
        world.cut(rank)
    if given_up:
        for rank in away:
            world.give_up(rank)
    most = world.everybody_trains(ROUNDS)
    made = sum(replica.published for replica in (world.live | world.given_up).values()) * RANGE.size
    assert most < 5 * 3 * BUDGET < made
    if dies is not None and dies in world.live:
        world.kill(dies)
    world.everybody_trains(3)
    world.finish()


def test_the_bound_does_not_grow_with_the_cut():
    world = world_of(3, seed=1)
    world.everybody_trains(5)
    world.cut(2)
    first, later = world.everybody_trains(200), world.everybody_trains(2000)
    assert later <= 1.5 * first
    world.finish()
    made = sum(replica.published for replica in world.live.values())
    assert made > 6000 and all(len(replica.included) == made for replica in world.live.values())


def test_others_merge_what_the_origin_merged_and_nothing_else():
    strategy = Broadcast(merge=join_ranges)
    state = strategy.start(0, synced=True)
    for rank in (1, 2):
        strategy.on(state, PeerJoined(rank), 0.0)
    log = state.log_of(1)
    for number in range(1, 9):
        log.append(number, number, Ranged.written(1, number))
    told = Report(0, 0, False, {1: 8, 0: 0}, [], -1, merged=[(3, 6)])
    strategy.on(state, Arrived(1, told, []), 0.0)
    assert [(entry.lo, entry.hi) for entry in log.entries] == [(1, 1), (2, 2), (3, 6), (7, 7), (8, 8)]
    assert list(Ranged.names(log.entries[2].payload)) == [(1, number) for number in range(3, 7)]
    assert log.nbytes == 5 * RANGE.size
    for odd in ([(1, 99)], [(4, 8)], [(6, 3)], [(0, 2)], [(2**40, 2**41)]):
        strategy.on(state, Arrived(1, Report(0, 0, False, {1: 8}, [], -1, merged=odd), []), 0.0)
    assert [(entry.lo, entry.hi) for entry in log.entries] == [(1, 1), (2, 2), (3, 6), (7, 7), (8, 8)]


def test_the_rest_of_a_dead_stream_is_handed_on_whole():
    """Else somebody could stand where another has merged, and get nothing more."""
    strategy = Broadcast(merge=join_ranges)
    state = strategy.start(0, synced=True)
    for rank in (1, 2):
        strategy.on(state, PeerJoined(rank), 0.0)
    for number in range(1, 1001):
        state.log_of(2).append(number, number, Ranged.written(2, number))
    strategy.on(state, PeerGone(2), 0.0)
    actions = strategy.on(state, Arrived(1, Report(0, 0, False, {2: 7}, [2], -1), []), 10.0)
    sent = [one for one in actions if isinstance(one, Send) and isinstance(one.message, Updates)]
    assert [(span.lo, span.hi) for span in sent[0].message.spans] == [(8, 1000)] and len(sent) == 1  # type: ignore[union-attr]
    assert list(Ranged.names(bytes(sent[0].payloads[0]))) == [(2, number) for number in range(8, 1001)]


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_where_all_together_is_too_large_as_much_as_fits_becomes_one(limit):
    log = Log()
    for number in range(1, 17):
        log.append(number, number, b"x")
    log.compact(lambda at: at in (4, 5), merge=b"".join, limit_nbytes=limit)
    assert all(len(entry.payload) <= limit for entry in log.entries)
    assert sum(entry.hi - entry.lo + 1 for entry in log.entries) == log.nbytes == 16
    assert log.boundary(4) and log.boundary(5)
    assert len(log.entries) <= 2 * 16 // limit + 2


@pytest.mark.parametrize("strategy", ["adpsgd", "codistillation:every=2", "relay", "gossip", "gossip:mix=1", "server"])
def test_little_waits_for_one_that_cannot_be_heard(strategy):
    """Of methods that never wait: worker 3 of four hears nothing, and is not heard, for hundreds of steps."""
    choice = parse(strategy)
    method, noise = choice.method(), np.random.default_rng(1)

    def step(actor):
        actor.x += noise.normal(0, 0.1, 24).astype(np.float32)
        return 1

    actor = with_codec(method.codecs[0], 4) if method.streams else None
    start = [np.zeros(24, np.float32)] * 4
    world = MethodWorld(method, start, topology=default_topology(choice), seed=1, step=step, actor=actor)
    for _ in range(1500):
        pairs = [pair for pair, queue in sorted(world.queues.items()) if queue and 3 not in pair]
        if pairs and world.random.random() < 0.6:
            sender, to = world.random.choice(pairs)
            world._hear(to, world.queues[(sender, to)].popleft())
        else:
            rank = world.random.randrange(4)
            world.catch_up(rank)
            world.take_step(rank)
    assert all(each.steps > 50 for each in world.actors.values())
    waiting = [item for pair, queue in world.queues.items() if 3 in pair for item in queue]
    assert len([item for item in waiting if item.payload]) <= 3 * 2 * (4 if method.name == "gossip" else 2)
    assert len(waiting) <= 3 * 2 * 5


def test_published_while_alone_is_forgotten():
    strategy = Broadcast(merge=join_ranges)
    state = strategy.start(0, synced=True)
    for number in range(1, 50):
        strategy.on(state, Published(Ranged.written(0, number)), 0.0)
    assert state.log_of(0).nbytes == 0
