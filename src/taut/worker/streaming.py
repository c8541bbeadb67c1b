"""Talking by streams: after every few steps, include what arrived and send what the codec has to say."""

from __future__ import annotations

import time
from collections.abc import Callable

from taut.worker.accounting import Stopwatch
from taut.worker.facts import Facts
from taut.worker.node import Node
from taut.worker.participant import Participant
from taut.worker.replica import Replica
from taut.worker.talk import Talk

RETUNE_STEPS = 64
EXCHANGE_SHARE = 0.03
MOST_STEPS_PER_TURN = 8


class Streaming(Talk):
    """Drives ``replica`` on ``node``, whose strategy is a ``Broadcast``. Nobody waits."""

    def __init__(self, replica: Replica, node: Node, watch: Stopwatch) -> None:
        self.replica, self.node, self.watch = replica, node, watch
        self.participant = Participant(replica, node, watch)
        self._steps = 0
        self._steps_per_turn = 1
        self._exchange_s = 0.0  # of this thread, spent on exchanges since the last retune
        self._retuned_s = time.thread_time()

    def start(self) -> None:
        self._retuned_s = time.thread_time()

    def joined(self, have: dict[int, int]) -> None:
        self.participant.have.update(have)

    def have(self) -> dict[int, int]:
        return {**self.participant.have, self.node.rank: self.participant.published}

    @property
    def exact(self) -> bool:
        replica = self.replica
        if not (replica.codec.exact and replica.talks):
            return False
        return replica.grid is None or not replica.grid.exceeded(replica.shared())

    @property
    def sent(self) -> int:  # type: ignore[override]
        return self.participant.published

    @property
    def included(self) -> int:  # type: ignore[override]
        return self.participant.included

    @property
    def staleness(self) -> float:  # type: ignore[override]
        return float(self.node.staleness * self._steps_per_turn)

    def idle(self) -> None:
        self.participant.idle()

    def wait(self, until: Callable[[Facts], bool], again: Callable[[], None]) -> None:
        self.node.wait(until, self.idle, again)

    def exchange(self, samples: int, rate: float) -> None:
        if self._steps % RETUNE_STEPS == 0:
            self._retune()
        self._steps += 1
        if self._steps % self._steps_per_turn:
            return
        begun_s = time.thread_time()
        if self.replica.talks:
            self.participant.turn()
        else:
            self.participant.idle()
        self._exchange_s += time.thread_time() - begun_s

    def _retune(self) -> None:
        """Tell the codec how many there are and how late updates come (in exchanges). Where steps are so short that
        exchanging after each would cost more than ``EXCHANGE_SHARE`` of the time, exchange after every second, fourth or
        eighth: the slack absorbs the wait, and as an element sends one sign per exchange at most, nothing piles up."""
        now_s = time.thread_time()  # this thread's own time: how busy the machine is must not change what is sent
        cost_s = self._exchange_s * self._steps_per_turn  # as if after each step
        share = cost_s / max(now_s - self._retuned_s - self._exchange_s, 1e-9)
        self._retuned_s, self._exchange_s = now_s, 0.0
        self._steps_per_turn = 1
        while self.replica.talks and self._steps_per_turn < min(MOST_STEPS_PER_TURN, share / EXCHANGE_SHARE):
            self._steps_per_turn *= 2
        self.replica.retune(self.node.workers, self.node.staleness)
        self.replica.update_sketch()

    def finish(self) -> None:
        self.node.wait(lambda facts: facts.drain is not None, self.idle)
        self.watch.charge("wait")
        self._flush()
        self.participant.drain()

    def leave(self) -> None:
        self._flush()
        self.node.end()
        self.node.wait(lambda _: self.node.settled(), self.idle)

    def _flush(self) -> None:
        positions = self.participant.merge()
        self.watch.charge("merge")
        for payload in self.replica.flush() if self.replica.talks else []:
            self.participant.hand_over(payload, positions)
            positions = {}
        if positions:
            self.node.taken(positions)
