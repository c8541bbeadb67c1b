"""Many workers in virtual time, event by event: steps, messages, faults. What a worker does with them is its kind's
affair: ``methods.py`` for methods, ``streams.py`` for streams.

A worker has one thread. What it does for the exchange while it trains (a concurrent method's answers) is work that its
step waits for; what comes while it works waits in its inbox.
"""

from __future__ import annotations

import gc
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from taut.core.messages import SUPERVISOR
from taut.errors import RunFailed
from taut.simulator.models.network import Network
from taut.simulator.models.rng import Rng
from taut.simulator.models.speeds import Pace
from taut.simulator.timing.accounts import COMPUTE, MERGE, WAIT, Account
from taut.simulator.timing.faults import TimingFaults
from taut.simulator.timing.history import TimingHistory
from taut.simulator.timing.noise import Noise
from taut.simulator.timing.worker import SECOND_NS, Setting, Worker

Handler = Callable[[int, Any, Any], None]  # the time, the worker, and what it is about

DONE_NBYTES = 64  # what a worker and the supervisor say to each other at the end
STALLED_TICKS = 2000  # per worker, and nothing else is going to happen: nobody will ever go on
DRAINED_WORKERS = 256  # beyond, the end is not simulated: there everybody takes leave of everybody


class TimingWorld(ABC):
    """The clock, and what happens to workers whatever they do. ``density``: the share of parameters sent per step."""

    density = 0.0
    hands_over = False  # a newcomer gets the state when it is a member
    noise: Noise | None = None

    def __init__(self, setting: Setting) -> None:
        scenario = setting.scenario
        self.setting, self.scenario, self.costs = setting, scenario, scenario.costs
        self.network = Network(scenario.links, Rng(scenario.seed, "network"))
        self.pace = Pace(scenario.speeds, Rng(scenario.seed, "speeds"))
        self.heap: list[tuple[int, int, Handler, Any, Any]] = []
        self.events = itertools.count()
        self.now_ns = self.wall_ns = self.version = 0
        self.over = False
        self.draining = False
        self._ending = False  # all have ended, and the supervisor is being told
        self.dead: set[int] = set()
        self.gone: dict[int, str] = {}
        self.workers: dict[int, Worker] = {}
        self.history = TimingHistory(setting, self.workers)
        self.step_handler: Handler = self._step_over
        self.message_ns = round(self.costs.message_s * SECOND_NS)
        self._ticks = 0
        for rank in range(scenario.workers):
            self.add(rank, setting.steps)
        self.members: tuple[int, ...] = tuple(self.workers)
        self.faults = TimingFaults(self)

    # ----------------------------------------------------------------------------------------- of each kind

    @abstractmethod
    def start(self) -> None:
        """Everybody is here: the first steps begin."""

    @abstractmethod
    def stepped(self, worker: Worker, now_ns: int) -> None:
        """A worker's local step is over."""

    @abstractmethod
    def changed(self, now_ns: int, gone: int | None) -> None:
        """The members changed: ``gone`` is no more, or somebody is new."""

    @abstractmethod
    def admit(self, worker: Worker, donor: Worker, now_ns: int) -> None:
        """A newcomer has the state of ``donor``."""

    @abstractmethod
    def drain(self, now_ns: int) -> None:
        """Everybody has made its steps."""

    @abstractmethod
    def figures(self, worker: Worker) -> dict[str, float]:
        """What the strategy counts."""

    # ------------------------------------------------------------------------------------------ the run

    def at(self, when_ns: int, handler: Handler, worker: Worker | None = None, item: Any = None) -> None:
        heappush(self.heap, (when_ns, next(self.events), handler, worker, item))

    def run(self) -> None:
        """Until the run is over. Cyclic garbage is not looked for meanwhile: that took a third of the time."""
        collects = gc.isenabled()
        gc.disable()
        try:
            self.start()
            self._loop()
        finally:
            if collects:
                gc.enable()
        if not self.over:
            self._stalled()
        for worker in self.workers.values():
            if worker.alive:
                worker.account.charge(WAIT, self.wall_ns)

    def _loop(self) -> None:
        heap, step = self.heap, self.step_handler
        while heap and not self.over:
            now_ns, _, handler, worker, item = heappop(heap)
            if worker is not None:
                if not worker.alive:
                    continue
                if worker.frozen_ns > now_ns and handler is not step:
                    self.at(worker.frozen_ns, handler, worker, item)
                    continue
            self.now_ns = now_ns
            handler(now_ns, worker, item)

    def ticked(self) -> None:
        """Time alone has passed for a worker."""
        self._ticks = self._ticks + 1 if len(self.heap) <= len(self.workers) else 0
        if self._ticks > STALLED_TICKS * len(self.workers):
            self._stalled()

    def _stalled(self) -> None:
        waiting = [rank for rank in self.members if not self.workers[rank].ended] or list(self.members)
        raise RunFailed(f"workers {waiting[:8]} wait for ever: that is a bug in the strategy or the simulator")

    def begin_step(self, worker: Worker, now_ns: int) -> int:
        """The worker trains; when its step will be over, if nothing interferes."""
        worker.training = True
        ends_ns = now_ns + self.pace.step_ns(worker.rank, worker.steps)
        heappush(self.heap, (ends_ns, next(self.events), self.step_handler, worker, None))
        return ends_ns

    def _step_over(self, now_ns: int, worker: Worker, _: None) -> None:
        account = worker.account
        if worker.paused_ns:
            paused_ns, worker.paused_ns = worker.paused_ns, 0
            self.at(now_ns + paused_ns, self.step_handler, worker)
            return
        if worker.debt_ns:
            account.charge(COMPUTE, now_ns)
            debt_ns, worker.debt_ns = worker.debt_ns, 0
            self.at(now_ns + debt_ns, self._debt_paid, worker)
            return
        account.charge(COMPUTE, now_ns)
        self._count(worker, now_ns)
        self.stepped(worker, now_ns)

    def _debt_paid(self, now_ns: int, worker: Worker, _: None) -> None:
        worker.account.charge(MERGE, now_ns)
        worker.debt_ns = 0  # what came meanwhile has been worked off too: it had nothing else to do
        self._count(worker, now_ns)
        self.stepped(worker, now_ns)

    def _count(self, worker: Worker, now_ns: int) -> None:
        worker.steps += 1
        self.history.stepped(worker, now_ns, len(self.members), self.figures)

    def end(self, worker: Worker, now_ns: int) -> None:
        """The worker has made its steps."""
        worker.ended = True
        worker.training = False

    def look_whether_all_ended(self, now_ns: int) -> None:
        if self.draining or self.over or self._ending or not self._all_ended():
            return
        if len(self.members) > DRAINED_WORKERS:
            self.draining = True
            self.finish(now_ns)
            return
        self._ending = True
        rank = self.members[0]
        told_ns = self.network.arrival(rank, SUPERVISOR, DONE_NBYTES, now_ns)
        self.at(self.network.arrival(SUPERVISOR, rank, DONE_NBYTES, told_ns), self._drain_all)

    def _all_ended(self) -> bool:
        workers = [self.workers[rank] for rank in self.members]
        return all(worker.ended and worker.alive for worker in workers)  # of a death the others must be told first

    def _drain_all(self, now_ns: int, _: None, __: None) -> None:
        """The supervisor has heard that all have ended, and they hear it from the supervisor."""
        self._ending = False
        if self._all_ended():
            self.draining = True
            self.drain(now_ns)

    def look_whether_all_finished(self, now_ns: int) -> None:
        if self.draining and all(self.workers[rank].finished for rank in self.members):
            self.finish(now_ns)

    def finish(self, now_ns: int) -> None:
        self.over = True
        self.wall_ns = max(now_ns, self.wall_ns)

    def add(self, rank: int, goal: int, now_ns: int = 0) -> Worker:
        worker = self.workers[rank] = Worker(rank, goal, Account(rank, now_ns, self.setting.trace))
        return worker
