"""The order of a stream's turns: after a step include what has arrived and publish, after each or after every k-th."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from taut.worker.exchange.turns import Turn, Wait

RETUNE_STEPS = 64
MUCH_SHARE = 0.06  # of the thread's time: where exchanging after each step takes more than this,
EXCHANGE_SHARE = 0.02  # it is done so seldom that it takes this
MOST_STEPS_PER_TURN = 8
ALONE_STEPS_PER_TURN = 8  # of a worker that has nobody to tell: fixed, not measured, so that its run repeats itself


def stream_limits(dense_nbytes: int) -> dict[str, int]:
    """Return how many bytes a stream may keep, and send ahead: several updates, whatever the model's size."""
    return {"budget_nbytes": max(16 << 20, dense_nbytes // 8), "window_nbytes": max(1 << 20, dense_nbytes // 16)}


class StreamIO(Protocol):
    """What a stream's turns need of the world.

    ``publishes``: updates are published at all. ``bounded``: the strategy bounds the delay; then a worker has a clock,
    waits while that is beyond ``horizon``, and ``fastest`` is the largest clock known. ``over``: training is, for all;
    ``drained``: every worker has all updates; ``delivered``: every worker has all of ours."""

    @property
    def publishes(self) -> bool: ...
    @property
    def bounded(self) -> bool: ...
    @property
    def horizon(self) -> float: ...
    @property
    def fastest(self) -> int: ...
    @property
    def stopping(self) -> bool: ...
    @property
    def over(self) -> bool: ...
    @property
    def drained(self) -> bool: ...
    @property
    def delivered(self) -> bool: ...

    def worked_s(self) -> float:
        """Return for how long this worker's thread has worked so far, waits aside."""

    def steps_alone(self) -> int | None:
        """Return after how many steps a worker exchanges that is alone in the run, or looks whether it still is; None
        where it is not."""

    def unheard(self) -> bool:
        """Return whether an exchange would be for nobody: this worker is alone, and its codec catches up later."""

    def retuned(self) -> None:
        """Tell the codec how many workers there are, and how late updates come."""

    def take_in(self) -> None:
        """Receive what has come."""

    def include(self) -> dict[int, int]:
        """Include what has been received; return the positions that were reached, by origin."""

    def emit(self) -> bytes | None:
        """Return the update of the last steps."""

    def flush(self) -> Iterable[bytes]:
        """Return the updates that the codec has held back."""

    def publish(self, payload: bytes | None, positions: dict[int, int]) -> None:
        """Send an update, and say what was included."""

    def charge(self, kind: str) -> object:
        """Charge the time since the last charge to this kind of work."""

    def confirm(self, positions: dict[int, int]) -> None:
        """Say what was included, where no update is due."""

    def tick(self, clock: int) -> None:
        """Tell the others this worker's clock."""

    def hand_off(self, idle: Callable[[], None]) -> Turn:
        """Give what the codec keeps to another worker."""

    def end(self) -> None:
        """Say that no more updates follow."""


class StreamDriver:
    """One worker's turns around a ``Broadcast``. No worker waits, unless the strategy bounds the delay."""

    def __init__(self, io: StreamIO) -> None:
        self.io = io
        self.clock = self.steps = 0
        self.steps_per_turn = 1
        self._exchange_s = 0.0  # of this thread, spent on exchanges since the last retune
        self._retuned_s = io.worked_s()

    def start(self) -> Turn:
        """Begin, level with the others."""
        self._retuned_s = self.io.worked_s()
        self._level()
        yield from self._hold()

    def due(self) -> bool:
        """Count a local step; return whether a turn is due after it."""
        if self.steps % RETUNE_STEPS == 0:
            self._retune()
        self.steps += 1
        return self.steps % self.steps_per_turn == 0 and not self.io.unheard()

    def turn(self) -> Turn:
        """Include what arrived, publish, and wait where this worker is too far ahead."""
        io = self.io
        began_s = io.worked_s()
        if io.publishes:
            io.take_in()
            io.charge("send")
            positions = io.include()
            io.charge("merge")
            payload = io.emit()
            io.charge("encode")
            yield None
            io.publish(payload, positions)
            io.charge("send")
        else:
            self.idle()
        self._exchange_s += io.worked_s() - began_s
        if io.bounded:
            self.clock += 1
            io.tick(self.clock)
            yield from self._hold()

    def idle(self) -> None:
        """Go on including while this worker waits."""
        self.io.confirm(self.io.include())

    def rest(self) -> None:
        """Go on including while this worker has no data. Where the delay is bounded it counts as level with the fastest:
        the data that it waits for may be with a worker that waits for its clock."""
        self.idle()
        self._level()

    def _level(self) -> None:
        if self.io.bounded and self.io.fastest > self.clock:
            self.clock = self.io.fastest
            self.io.tick(self.clock)

    def _may_go_on(self) -> bool:
        return self.clock <= self.io.horizon or self.io.stopping

    def _hold(self) -> Turn:
        if not self._may_go_on():
            yield Wait(self._may_go_on, self.idle)

    def wait(self, until: Callable[[], bool]) -> Turn:
        """Wait for an answer of the supervisor."""
        yield Wait(until, self.rest, on_supervisor=True)
        yield from self._hold()

    def finish(self) -> Turn:
        """Wait until training is over for all, and drain."""
        yield Wait(lambda: self.io.over, self.rest, on_supervisor=True)
        yield from self.drain()

    def drain(self) -> Turn:
        """Publish what is left, and wait until every worker has everything."""
        self._flush()
        self.io.end()
        yield Wait(lambda: self.io.drained, self.idle, on_supervisor=True)
        self.idle()

    def leave(self) -> Turn:
        """Publish what is left, hand on what the codec keeps, and wait until the others have it."""
        self._flush()
        yield from self.io.hand_off(self.rest)
        self.io.end()
        yield Wait(lambda: self.io.delivered, self.rest, on_supervisor=True)

    def _flush(self) -> None:
        positions = self.io.include()
        for payload in self.io.flush() if self.io.publishes else ():
            self.io.publish(payload, positions)
            self.io.charge("send")
            positions = {}
        self.io.confirm(positions)

    def _retune(self) -> None:
        """Choose after how many steps to exchange. Where steps are so short that exchanging after each would cost more
        than ``MUCH_SHARE`` of the time, exchange after every second, fourth or eighth: the slack absorbs the wait, and as
        an element sends one sign per exchange at most, nothing piles up. Clocks that are compared need each step."""
        now_s = self.io.worked_s()
        cost_s = self._exchange_s * self.steps_per_turn  # as if after each step
        share = cost_s / max(now_s - self._retuned_s - self._exchange_s, 1e-9)
        self._retuned_s, self._exchange_s, self.steps_per_turn = now_s, 0.0, 1
        if self.io.publishes and not self.io.bounded:
            alone = self.io.steps_alone()
            wanted = min(MOST_STEPS_PER_TURN, share / EXCHANGE_SHARE) if share > MUCH_SHARE else 1
            while alone is None and self.steps_per_turn < wanted:
                self.steps_per_turn *= 2
            self.steps_per_turn = alone or self.steps_per_turn
        self.io.retuned()
