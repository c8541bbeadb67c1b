"""Talking by streams: after every few steps, include what arrived and send what the codec has to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from taut.errors import MalformedMessage
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.run_status import RunStatus
from taut.worker.exchange.base import Exchange
from taut.worker.exchange.residual_handoff import ResidualHandoffDriver
from taut.worker.exchange.stream_turns import StreamTurns
from taut.worker.model.replica import Replica
from taut.worker.time_split import Stopwatch

RETUNE_STEPS = 64
MUCH_SHARE = 0.06  # of the thread's time: where exchanging after each step takes more than this,
EXCHANGE_SHARE = 0.02  # it is done so seldom that it takes this
MOST_STEPS_PER_TURN = 8
ALONE_STEPS_PER_TURN = 8  # of a worker that has nobody to tell: fixed, not measured, so that its run repeats itself


class StreamExchange(Exchange):
    """Drives ``replica`` on ``node``, whose strategy is a ``Broadcast``. Nobody waits, unless the strategy bounds the
    delay: then this worker has a clock, and after each step waits until the strategy's horizon reaches it."""

    def __init__(self, replica: Replica, node: CommThread, watch: Stopwatch) -> None:
        self.replica, self.node, self.watch = replica, node, watch
        self.participant = StreamTurns(replica, node, watch)
        self.bequest = ResidualHandoffDriver(node, replica.inherit)
        self.clock = 0
        self._steps = 0
        self._steps_per_turn = 1
        self._exchange_s = 0.0  # of this thread, spent on exchanges since the last retune
        self._retuned_s = watch.thread_s()

    def start(self) -> None:
        self._retuned_s = self.watch.thread_s()
        self._rest()
        self._hold()

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
        return float(self.node.stages.staleness * self._steps_per_turn)

    def kept(self) -> dict[str, int]:
        return {"steps": self._steps, "steps_per_turn": self._steps_per_turn, "workers": self.node.workers}

    def restore(self, kept: Mapping[str, int]) -> None:
        if kept["workers"] == self.node.workers:
            self._steps, self._steps_per_turn = kept["steps"], kept["steps_per_turn"]

    def idle(self) -> None:
        self._inherit()
        self.participant.idle()
        self._rest()

    def wait(self, until: Callable[[RunStatus], bool], again: Callable[[], None]) -> None:
        self.node.wait(until, self.idle, again)
        self._hold()

    def _rest(self) -> None:
        """Where the delay is bounded, a worker without data counts as level with the fastest: what it waits for may be
        in the hands of somebody who waits for its clock."""
        if self.node.bounded and self.node.stages.fastest > self.clock:
            self.clock = self.node.stages.fastest
            self.node.ticked(self.clock)

    def _hold(self) -> None:
        """Wait until the strategy lets this worker go on."""

        def may_go(facts: RunStatus) -> bool:
            return self.clock <= self.node.stages.horizon or facts.stopping

        if not may_go(self.node.facts):
            self.node.wait(may_go, self.participant.idle, needs_supervisor=False)
            self.watch.charge("wait")

    def exchange(self, samples: int, rate: float) -> None:
        if self._steps % RETUNE_STEPS == 0:
            self._retune()
        self._steps += 1
        if self._steps % self._steps_per_turn:
            return
        begun_s = self.watch.thread_s()
        self._inherit()
        if self.replica.talks:
            self.participant.turn()
        else:
            self.participant.idle()
        self._exchange_s += self.watch.thread_s() - begun_s
        if self.node.bounded:
            self.clock += 1
            self.node.ticked(self.clock)
            self.node.pump(receive=False)  # somebody may be waiting for it
            self._hold()

    def _retune(self) -> None:
        """Tell the codec how many there are and how late updates come (in exchanges). Where steps are so short that
        exchanging after each would cost more than ``EXCHANGE_SHARE`` of the time, exchange after every second, fourth or
        eighth: the slack absorbs the wait, and as an element sends one sign per exchange at most, nothing piles up."""
        now_s = self.watch.thread_s()  # this thread's own time: how busy the machine is must not change what is sent
        cost_s = self._exchange_s * self._steps_per_turn  # as if after each step
        share = cost_s / max(now_s - self._retuned_s - self._exchange_s, 1e-9)
        self._retuned_s, self._exchange_s = now_s, 0.0
        self._steps_per_turn = 1
        if self.node.workers == 1 and self.replica.talks and not self.node.bounded:
            # Where a residual holds back what is not sent, every step counts.
            self._steps_per_turn = 1 if self.replica.codec_state.r is not None else ALONE_STEPS_PER_TURN
            share = 0.0
        may_skip = self.replica.talks and not self.node.bounded  # where clocks are compared, each step is told
        wanted = min(MOST_STEPS_PER_TURN, share / EXCHANGE_SHARE) if may_skip and share > MUCH_SHARE else 1
        while self._steps_per_turn < wanted:
            self._steps_per_turn *= 2
        self.replica.retune(self.node.workers, self.node.stages.staleness)
        self.replica.update_sketch()

    def finish(self) -> None:
        phase = self.node.stage.phase
        self.node.wait(lambda facts: facts.over(phase), self.idle)
        self.watch.charge("wait")
        self._flush()
        self.participant.drain()

    def leave(self) -> None:
        self._flush()
        self.bequest.hand_on(self.replica.bequest(), (), self.idle)
        self.node.end()
        self.node.wait(lambda _: self.node.settled(), self.idle)

    def _inherit(self) -> None:
        mail = self.node.stage.mail
        while mail:
            item = mail.popleft()
            try:
                if not self.bequest.heard(item):
                    raise MalformedMessage(f"{item.note.kind!r} is no message of a stream's")
            except MalformedMessage as error:
                self.node.refusals.add(item.sender, str(error))

    def _flush(self) -> None:
        positions = self.participant.merge()
        self.watch.charge("merge")
        for payload in self.replica.flush() if self.replica.talks else []:
            self.participant.hand_over(payload, positions)
            positions = {}
        if positions:
            self.node.taken(positions)
