"""The split of a worker's time into kinds of work, which sums to the wall time by construction."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar

from taut.core.clock import Clock, MonotonicClock
from taut.core.messages import TIME_PARTS
from taut.worker.tracing import StepTracer


@dataclass
class Stopwatch:
    """Charges the time since the last call to one kind of work.

    >>> from taut.testing.clock import FakeClock
    >>> clock = FakeClock()
    >>> watch = Stopwatch(clock)
    >>> clock.advance(2.0); watch.charge("compute")
    2.0
    >>> clock.advance(0.5); watch.charge("merge")
    0.5
    >>> watch.wall_s
    2.5
    """

    clock: Clock = field(default_factory=MonotonicClock)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TIME_PARTS, 0.0))
    tracer: StepTracer | None = None  # that makes spans of it
    virtual: ClassVar[bool] = False  # a model says how long things take: no thread may work beside training

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start from zero: training starts now."""
        self.last_s = self.clock.now()
        for kind in self.seconds:
            self.seconds[kind] = 0.0

    def charge(self, kind: str) -> float:
        """Charge the time since the last charge to ``kind``; return it."""
        now = self.clock.now()
        spent = now - self.last_s
        self.seconds[kind] += spent
        self.last_s = now
        if self.tracer is not None:
            self.tracer.charged(kind, spent)
        return spent

    def thread_s(self) -> float:
        """Return the time that this thread itself has worked, whatever else the machine was busy with."""
        return time.thread_time()

    def reached(self, share: float) -> None:
        """Note that ``share`` of the step's computing is done. The simulator lets that time pass."""

    @property
    def elsewhere(self) -> bool:
        """Return whether virtual time cannot pass here: this is no thread of the worker's own."""
        return False

    def weigh(self, batches: float) -> None:
        """Note how many usual batches the next one is as large as. The simulator's steps take that many times as long."""

    def begin_step(self) -> None:
        """Note that the exchange is over, and the next step begins."""
        if self.tracer is not None:
            self.tracer.stepped()

    @property
    def wall_s(self) -> float:
        return sum(self.seconds.values())
