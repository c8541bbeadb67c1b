"""The setting of a simulation in which only time counts, and one of its workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from taut.core.messages import TIME_PARTS

if TYPE_CHECKING:
    from taut.simulator.scenario import Scenario
    from taut.simulator.timing.accounts import Account
    from taut.simulator.trace import Trace
    from taut.strategies.compatibility import Combination
    from taut.worker.exchange.turns import Wait

CHARGED = {kind: number for number, kind in enumerate(TIME_PARTS)}
Progress = Callable[[float], None]  # is told the share that is done
SECOND_NS = 1_000_000_000
STEPS = 100  # where the scenario does not say


@dataclass(frozen=True)
class Setting:
    """What is run. ``detect_s``: from a worker's death until the others are told."""

    scenario: Scenario
    chosen: Combination
    detect_s: float = 2.0
    trace: Trace | None = None
    progress: Progress | None = None
    noise: bool = False  # steps move the stand-ins, each by a draw of variance 1 per element: see noise.py

    @property
    def steps(self) -> int:
        return STEPS if self.scenario.steps is None else self.scenario.steps


class TimedWorker:
    """One simulated worker, and the I/O of its turns. ``turn``: the present one; ``wait``: the one that it stands in, if
    it does. ``training``: a step is under way; ``busy_ns``: its thread is at work until then; ``debt_ns``: work
    that its step waits for; ``paused_ns``: how long the step stood still; ``frozen_ns``: until then it does nothing at
    all."""

    __slots__ = (
        "account",
        "alive",
        "busy_ns",
        "debt_ns",
        "driver",
        "ended",
        "finished",
        "frozen_ns",
        "goal",
        "inbox",
        "leaving",
        "paused_ns",
        "rank",
        "steps",
        "training",
        "turn",
        "wait",
        "waking",
    )

    def __init__(self, rank: int, goal: int, account: Account) -> None:
        self.rank, self.goal, self.account = rank, goal, account
        self.alive = True
        self.training = self.ended = self.leaving = self.finished = self.waking = False
        self.steps = self.busy_ns = self.debt_ns = self.paused_ns = self.frozen_ns = 0
        self.inbox: deque[Any] = deque()
        self.turn: Iterator[Wait | None] = iter(())
        self.wait: Wait | None = None
        self.driver: Any = None

    def charge(self, kind: str) -> None:
        if self.busy_ns > self.account.last_ns:
            self.account.charge(CHARGED[kind], self.busy_ns)
