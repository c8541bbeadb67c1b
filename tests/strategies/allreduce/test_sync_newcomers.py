"""Workers join synchronous training at any moment, and die at any moment of that, heard of by the others at any time: all
who complete a round have the same weights and the same optimizer's state, and the step is that of one worker with the sum
of the batches of those who took part. Nobody waits for ever."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from unittest import mock

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.events import PeerGone, PeerJoined
from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.allreduce import state_transfer
from taut.strategies.allreduce.state_transfer import MOST_GIVERS, PIECE_NBYTES, NewcomerTransfer
from taut.strategies.allreduce.sync import Sync
from taut.strategies.allreduce.sync_state import SyncState
from taut.strategies.api import MembersChanged, Stepped, Tell
from taut.testing.worlds.codec_actor import CoderActor
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

MOST, SIZE, BUCKETS, ROUNDS = 8, 4, 2, 8
RATE, MOMENTUM = np.float32(0.1), np.float32(0.9)


def samples(rank: int) -> int:
    return 1 + rank % 3


def target(rank: int) -> np.ndarray:
    return np.random.default_rng(rank).normal(size=SIZE * BUCKETS).astype(np.float32)


def buffers(rank: int) -> bytes:
    return bytes([rank]) * 20


class Learner:
    """Weights and a momentum, moved by the mean gradient. Beside the gradient, each worker marks its place in every lane,
    so that the mean tells who is in it. ``history``: per round, all bits after it."""

    rank: int
    x: np.ndarray
    method_state: SyncState

    def begin(self) -> None:
        self.w = np.zeros(SIZE * BUCKETS, np.float32)
        self.m = np.zeros(SIZE * BUCKETS, np.float32)
        self.history: dict[int, bytes] = {}
        self.exact = True
        self.buffers = b""  # each worker's own, beside what all have

    def differentiate(self) -> int:
        view = self.x.reshape(BUCKETS, SIZE + MOST)
        view[:, :SIZE] = (self.w - target(self.rank)).reshape(BUCKETS, SIZE)
        view[:, SIZE:] = np.arange(MOST) == self.rank
        return samples(self.rank)

    def proceeded(self) -> None:
        state = self.method_state
        if state.finished and state.rate is None and state.transfer.over:
            return  # it came when all was over
        if state.rate is not None:
            view = self.x.reshape(BUCKETS, SIZE + MOST)
            gradient = view[:, :SIZE].reshape(-1)
            if self.exact:
                (party,) = {tuple(np.flatnonzero(row)) for row in view[:, SIZE:]}
                total = sum(samples(rank) for rank in party)
                mean = sum(samples(rank) * (self.w - target(rank)) for rank in party) / total
                assert np.allclose(gradient, mean, atol=1e-5), "one worker with the sum of the batches"
            self.m = MOMENTUM * self.m + gradient
            self.w = self.w - RATE * self.m
        self.history[state.buckets[0].machine.completed] = self.common()

    def common(self) -> bytes:
        return self.w.tobytes() + self.m.tobytes()

    def pack(self) -> bytes:
        return self.common() + self.buffers

    def unpack(self, state: bytes) -> None:
        nbytes = 2 * self.w.nbytes
        assert state[nbytes:] in (b"", *map(buffers, range(MOST))), "the buffers are of one worker"
        both = np.frombuffer(state[:nbytes], np.float32)
        self.w, self.m = both[: len(both) // 2].copy(), both[len(both) // 2 :].copy()


@dataclass
class DenseLearner(Learner, Actor):
    sizes: tuple[int, ...] = (SIZE + MOST,) * BUCKETS
    w: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))

    def __post_init__(self) -> None:
        self.begin()


class CodedLearner(Learner, CoderActor):
    def __init__(self, rank: int, x: np.ndarray, channels: object) -> None:
        from taut.codecs import parse

        CoderActor.__init__(self, rank, x, channels, parse("int8"), 3)  # type: ignore[arg-type]
        self.begin()
        self.exact = False


class Comings(MethodWorld):
    """Deaths and arrivals, of which the others learn one by one; what the dead one had said may still arrive."""

    unaware: set[int]

    def die(self, rank: int) -> None:
        del self.actors[rank]
        self.version += 1
        for (sender, to), queue in list(self.queues.items()):
            if to == rank:
                del self.queues[sender, to]
            elif sender == rank:
                for _ in range(self.random.randint(0, len(queue))):
                    queue.pop()
        self.unaware = set(self.actors)

    def come(self) -> None:
        newcomer = self.enter()
        self.unaware = set(self.actors) - {newcomer}

    def learn(self, rank: int) -> None:
        self.unaware.discard(rank)
        for pair in [pair for pair in self.queues if pair[1] == rank and pair[0] not in self.actors]:
            del self.queues[pair]
        for other in range(self.ranks):
            event = PeerJoined(other) if other in self.actors else PeerGone(other)
            if other != rank:
                self.channels.on(self.actors[rank].channels, event, self.now)
        self.tell(rank, MembersChanged(self.membership(rank)))


def step(actor: Actor) -> int:
    return actor.differentiate()  # type: ignore[attr-defined, no-any-return]


def rounds(actor: Actor) -> int:
    completed: int = actor.method_state.buckets[0].machine.completed
    return completed


CHANGES = st.lists(st.tuples(st.integers(0, 400), st.booleans()), min_size=1, max_size=4)


@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 4),
    how=st.sampled_from(["ring", "tree", "buckets", "backup", "codec"]),
    changes=CHANGES,
    piece_nbytes=st.sampled_from([PIECE_NBYTES, 30, 7]),
    differ=st.booleans(),
)
@settings(max_examples=some(160), deadline=None)
def test_who_joins_makes_the_same_steps(
    seed: int, workers: int, how: str, changes: list[tuple[int, bool]], piece_nbytes: int, differ: bool
) -> None:
    """``differ``: the workers' buffers are not the same, so that pieces of several givers do not fit together."""
    with mock.patch.object(state_transfer, "PIECE_NBYTES", piece_nbytes):
        run_through(seed, workers, how, changes, differ)


def run_through(seed: int, workers: int, how: str, changes: list[tuple[int, bool]], differ: bool) -> None:
    method = Sync(
        schedule="tree" if how == "tree" else "ring",
        backup=int(how == "backup"),
        bucket_mib=1e-5 if how == "buckets" else 0.0,
    )
    vectors = [np.zeros((SIZE + MOST) * BUCKETS, np.float32)] * workers
    kind = CodedLearner if how == "codec" else DenseLearner
    world = Comings(method, vectors, step=step, seed=seed, actor=kind)
    world.unaware = set()
    for event in range(30_000):
        for moment, joins in changes:
            if moment != event:
                continue
            if joins and world.ranks < MOST:
                world.come()
            elif not joins and sum(not method.bare(one.method_state) for one in world.actors.values()) > 1:
                world.die(world.random.choice(sorted(world.actors)))
        if world.unaware and world.random.random() < 0.1:
            world.learn(world.random.choice(sorted(world.unaware)))
        for rank, one in world.actors.items():
            one.buffers = buffers(rank) if differ else b""  # type: ignore[attr-defined]
        able = [rank for rank, one in sorted(world.actors.items()) if rounds(one) < ROUNDS or not one.proceed]
        if not world._happen(able) and not world.unaware and event > max(moment for moment, _ in changes):
            break
    state_lost = [one for one in world.actors.values() if method.state_lost(one.method_state)]
    assert not state_lost, "somebody had the state at every moment"
    for one in world.actors.values():
        assert rounds(one) >= ROUNDS, f"worker {one.rank} waits for ever"
    everybody: list[Learner] = [*world.actors.values()]  # type: ignore[list-item]
    for number in range(1, ROUNDS + 1):
        assert len({one.history[number] for one in everybody if number in one.history}) <= 1, f"round {number}"
    world.finish()
    assert len({one.common() for one in everybody}) == 1


def world_of(workers: int, **settings: int) -> Comings:
    vectors = [np.zeros((SIZE + MOST) * BUCKETS, np.float32)] * workers
    world = Comings(Sync(bucket_mib=0.0, **settings), vectors, step=step, actor=DenseLearner)
    world.unaware = set()
    return world


def test_a_newcomer_is_told_when_nobody_is_left_who_has_the_state() -> None:
    world = world_of(1)
    world.run(3)
    world.enter()
    world.die(0)
    world.learn(1)
    method, state = world.method, world.actors[1].method_state
    world.tell(1, MembersChanged(world.membership(1)))
    assert isinstance(method, Sync) and method.bare(state) and method.state_lost(state)


def test_who_comes_when_all_have_finished_has_what_they_have() -> None:
    world = world_of(2)
    world.run(3)
    world.finish()
    late = world.join()
    world.finish()
    assert world.actors[late].finished
    assert len({one.common() for one in world.actors.values()}) == 1  # type: ignore[attr-defined]


def test_what_cannot_be_read_is_asked_of_another() -> None:
    world = world_of(3)
    world.run(2)
    late = world.join()
    method, state = world.method, world.actors[late].method_state
    assert isinstance(method, Sync)
    seen: list[bytes] = []

    def unpack(data: bytes) -> None:
        seen.append(data)
        if len(seen) == 1:
            raise MalformedMessage("for once")

    world.actors[late].unpack = unpack  # type: ignore[method-assign]
    givers = []
    for _ in range(2_000):
        if state.transfer.lead is not None:
            givers.append(state.transfer.lead)
        if not method.bare(state) or not world._happen([0, 1, 2]):
            break
    assert sorted(set(givers)) == [0, 1] and len(seen) == 2 and not method.bare(state)


def test_rates_of_newcomers_do_not_count_beside_others() -> None:
    def rated(rates: dict[int, float]) -> float | None:
        world = world_of(2)
        world.run(1)
        late = world.join()
        world.run(1)
        if 0 not in rates:
            world.kill(0)
            world.kill(1)
        for rank, rate in rates.items():
            actor = world.actors[rank]
            actor.proceed = False
            world.tell(rank, Stepped(step(actor), rate))
        world._quiet()
        state: SyncState = world.actors[late].method_state
        return state.rate

    assert rated({0: 0.1, 1: 0.1, 2: 0.9}) == pytest.approx(0.1)
    assert rated({2: 0.9}) == pytest.approx(0.9)


NOTES = [
    Note("state", 3, 0, [0, 1, 0, 1]),
    Note("state", 3, 0, [0, 1]),
    Note("prints", 3, 0, [1, 1]),
    Note("want", 3, 0, []),
    Note("want", 3, 0, [-1, 1, 0, 1, 0]),
    Note("want", 3, 0, [1, 1, 1, 1, 0]),
    Note("want", 3, 0, [1, 1, 0, 2**30, 0]),
]


@pytest.mark.parametrize("note", NOTES)
def test_a_state_that_nobody_asked_for_is_refused(note: Note) -> None:
    with pytest.raises(MalformedMessage):
        NewcomerTransfer().heard(1, note, b"")


@pytest.mark.parametrize("numbers", [[1, 2, 0, 1], [0, 0, 0, 1], [0, 2**40, 0, 1], [0, 1, 0, 1]])
def test_pieces_come_in_order_and_within_bounds(numbers: list[float]) -> None:
    taker = NewcomerTransfer(limit_nbytes=4)
    taker.begin([1], round=3, version=9)
    with pytest.raises(MalformedMessage):
        taker.heard(1, Note("state", 3, 0, numbers), b"12345" if numbers[:2] == [0, 1] else b"1")
    assert taker.asked == [] and taker.came is None and taker.refused


def several(states: list[bytes]) -> tuple[NewcomerTransfer, list[tuple[int, Tell]]]:
    """Return a newcomer that has asked the owners of these ``states``, and what these tell it."""
    taker, told = NewcomerTransfer(limit_nbytes=1 << 20), list[tuple[int, Tell]]()
    with mock.patch.object(state_transfer, "PIECE_NBYTES", 10):
        for tell in taker.begin(list(range(len(states))), round=3, version=9):
            giver = NewcomerTransfer()
            giver.heard(99, tell.note, b"")
            told += [(tell.to, answer) for answer in giver.give(99, 3, states[tell.to], over=False)]
    return taker, told


@given(st.binary(min_size=1, max_size=200), st.integers(1, 6), st.randoms(use_true_random=False))
def test_several_give_a_state_once(state: bytes, givers: int, random: Random) -> None:
    """In whatever order their messages come; each gives about as much as any other."""
    taker, told = several([state] * givers)
    sent = Counter(dict.fromkeys(range(min(givers, MOST_GIVERS)), 0))
    queues = {giver: [tell for sender, tell in told if sender == giver] for giver in range(givers)}
    while any(queues.values()):
        giver = random.choice([giver for giver, queue in queues.items() if queue])
        tell = queues[giver].pop(0)
        taker.heard(giver, tell.note, bytes(tell.payload))
        sent[giver] += len(tell.payload) if tell.note.kind == "state" else 0
    assert taker.came == state
    assert sum(sent.values()) == len(state) and max(sent.values()) - min(sent.values()) <= 10


@given(st.data())
def test_whatever_others_say_the_state_is_the_leads_or_none(data: st.DataObject) -> None:
    """Their states are other ones, longer or shorter, or their messages are made up."""
    state = data.draw(st.binary(min_size=1, max_size=100))
    other = data.draw(st.binary(max_size=100))
    taker, told = several([state, other, state])
    for sender, tell in data.draw(st.permutations(told)):
        note, payload = tell.note, bytes(tell.payload)
        if sender == 1 and data.draw(st.booleans()):
            numbers = [data.draw(st.integers(0, 30)) for _ in note.numbers[:-1]]
            payload = data.draw(st.binary(max_size=12))
            kind, told_numbers = ("prints", numbers[:1]) if data.draw(st.booleans()) else ("state", numbers)
            note = Note(kind, 3, 0, [*told_numbers, 1])
        with contextlib.suppress(MalformedMessage):
            taker.heard(sender, note, payload)
    assert taker.came in (state, None)
