"""A state passed on along a chain of joiners, chunk by chunk, over links that lose messages and donors that change."""

from __future__ import annotations

import random
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from taut.core.messages import StateChunk, StateRequest
from taut.strategies.broadcast.state import BroadcastState
from taut.strategies.delivery.channels import Channels
from taut.strategies.delivery.retransmission import PeerLink
from taut.worker.comm.run_status import RunStatus
from taut.worker.comm.state_transfer import StateTransfer
from taut.worker.model.snapshot import Snapshot, pack

LIMIT = 1 << 26
TICKS_S = 0.1  # of this model, before the first chunk and after the last one


class Chain:
    """Worker 0 has the state; worker k takes it from worker k - 1. A message arrives ``latency_s`` after its last byte
    was sent, and each worker's own link carries ``bytes_per_s``."""

    def __init__(self, size: int, workers: int, bytes_per_s: float = 1e6, latency_s: float = 0.001) -> None:
        self.state = Snapshot(random.Random(size).randbytes(size))
        self.now, self.loss, self.chance = 0.0, 0.0, random.Random(workers)
        self._speed, self._latency_s = bytes_per_s, latency_s
        self._free_s = [0.0] * workers
        self.wire: deque[tuple[float, int, int, StateRequest | StateChunk, list[bytes]]] = deque()
        self.ends = [self._end(rank) for rank in range(workers)]
        self.links = [Channels().start(rank, False) for rank in range(workers)]
        for rank in range(1, workers):
            self.follow(rank, rank - 1)

    def _end(self, rank: int) -> StateTransfer:
        def send(to: int, message: StateRequest | StateChunk, payloads: object) -> None:
            parts = [bytes(part) for part in payloads]  # type: ignore[attr-defined]
            free_s = max(self.now, self._free_s[rank]) + (50 + sum(map(len, parts))) / self._speed
            self._free_s[rank] = free_s
            if self.chance.random() >= self.loss:
                self.wire.append((free_s + self._latency_s, rank, to, message, parts))

        return StateTransfer(RunStatus(), send, LIMIT)

    def follow(self, rank: int, donor: int) -> None:
        self.ends[rank]._status.donor = donor
        self.links[rank].links[donor] = None  # type: ignore[assignment]

    def has(self, rank: int) -> bytes | None:
        state = self.ends[rank]._status.state
        return None if state is None else bytes(state[0])

    def run(self, until_s: float = 1e3) -> float:
        """Let time pass until all have the state; return when that was."""
        missing = [rank for rank in range(1, len(self.ends)) if self.has(rank) is None]
        while missing and self.now < until_s:
            for rank in missing:
                self.ends[rank].go_on(self.links[rank], self.now)
            for rank, end in enumerate(self.ends):
                if end.wanted and (rank == 0 or self.has(rank) is not None):  # as the training thread does
                    end.wanted = False
                    end.grant(self.state, {})
            due = [item for item in self.wire if item[0] <= self.now]
            for item in sorted(due, key=lambda each: each[0]):
                self.wire.remove(item)
                _, sender, to, message, parts = item
                if isinstance(message, StateRequest):
                    self.ends[to].asked(sender, message)
                else:
                    self.ends[to].arrived(sender, message, parts, self.links[to], self.now)
            missing = [rank for rank in missing if self.has(rank) is None]
            later = min((item[0] for item in self.wire), default=self.now + 0.05)
            self.now = max(self.now + 1e-4, min(later, self.now + 0.05))
        return self.now


def test_three_take_little_longer_than_one_and_seven_as_well() -> None:
    size, speed = 30_000_000, 12.5e6  # 100 Mbit/s
    for receivers, most in ((1, 1.1), (3, 1.2), (7, 1.4)):
        took_s = Chain(size, 1 + receivers, speed, latency_s=0.0005).run()
        assert took_s < most * size / speed, (receivers, took_s * speed / size)


def test_a_fast_link_is_soon_full_though_each_process_takes_a_while_to_answer() -> None:
    size, speed = 30_000_000, 125e6  # 1 Gbit/s
    for receivers, most in ((1, 1.1), (7, 1.22)):
        took_s = Chain(size, 1 + receivers, speed, latency_s=0.002).run() - TICKS_S
        assert took_s < most * size / speed, (receivers, took_s * speed / size)


def test_a_slow_link_carries_the_state_once() -> None:
    size, speed = 200_000, 8_000.0  # 64 kbit/s
    chain = Chain(size, 2, speed, latency_s=0.05)
    assert chain.run() < 1.3 * size / speed, "nothing is asked for twice because it takes long"


@given(st.integers(0, 60_000), st.integers(2, 6), st.sampled_from([0.0, 0.1, 0.4]))
def test_all_get_the_whole_state_whatever_is_lost(size: int, workers: int, loss: float) -> None:
    chain = Chain(size, workers)
    chain.loss = loss
    chain.run()
    assert all(chain.has(rank) == pack(chain.state) for rank in range(1, workers))


@given(st.integers(1_000, 200_000), st.floats(0.0, 1.0))
def test_a_donor_that_founds_the_run_itself_has_its_follower_begin_anew(size: int, moment: float) -> None:
    chain = Chain(size, 3)
    chain.run(until_s=moment * size / 1e6)
    founded, other = chain.has(1) is None, Snapshot(b"\1" * size)
    if founded:  # worker 0 goes: the state of worker 1 is the run's, whatever had come before
        chain.ends[1]._status.donor, chain.state = -1, other
        chain.ends[1].go_on(chain.links[1], chain.now)
        has = chain.has
        chain.has = lambda rank: pack(other) if rank == 1 else has(rank)  # type: ignore[method-assign]
    chain.run()
    assert chain.has(2) == pack(chain.state)


@given(st.integers(1_000, 200_000), st.floats(0.0, 1.0))
def test_a_donor_that_goes_is_replaced_and_its_follower_begins_anew(size: int, moment: float) -> None:
    chain = Chain(size, 4)
    chain.run(until_s=moment * size / 1e6)
    for rank in (2, 3):  # worker 1 goes: worker 2 is given another donor, and worker 3 keeps its own
        chain.ends[rank].forget(1)
    if chain.has(2) is None:
        chain.follow(2, 0)
    chain.has = lambda rank, has=chain.has: b"gone" if rank == 1 else has(rank)  # type: ignore[method-assign]
    chain.run()
    assert chain.has(2) == chain.has(3) == pack(chain.state)


def test_a_founder_waits_until_its_neighbours_keep_their_updates_for_it() -> None:
    """Else an update that a neighbour made before it knew this worker would never come: 64 workers never drained."""
    stream = BroadcastState(rank=0, synced=False)
    stream.links[1], stream.links[2] = PeerLink(), PeerLink()
    end = StateTransfer(RunStatus(), lambda to, message, payloads: None, LIMIT)
    end._status.donor = -1
    end.go_on(stream, 0.0)
    assert not end._status.founds
    stream.links[1].heard = True
    end.go_on(stream, 0.1)
    assert not end._status.founds
    stream.links[2].heard = True
    end.go_on(stream, 0.2)
    assert end._status.founds
