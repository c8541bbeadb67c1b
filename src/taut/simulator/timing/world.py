"""Many workers in virtual time, event by event: steps, messages, faults. What a worker does with them is its kind's
affair: ``methods.py`` for methods, ``streams.py`` for streams.

A worker has one thread. What it does for the exchange while it trains (a concurrent method's answers) is work that its
step waits for; what comes while it works waits in its inbox.
"""

from __future__ import annotations

import gc
import itertools
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from taut.core.messages import SUPERVISOR
from taut.errors import RunFailed
from taut.simulator.models.network import Network
from taut.simulator.models.rng import Rng
from taut.simulator.models.speeds import Pace
from taut.simulator.timing.accounts import COMPUTE, MERGE, WAIT, Account
from taut.simulator.timing.faults import DONE_NBYTES, TimingFaults
from taut.simulator.timing.history import TimingHistory
from taut.simulator.timing.noise import Noise
from taut.simulator.timing.worker import SECOND_NS, Setting, TimedWorker
from taut.worker.comm.dispatcher import TICK_S
from taut.worker.exchange.turns import Turn, Wait

Handler = Callable[[int, Any, Any], None]  # the time, the worker, and what it is about
W = TypeVar("W", bound=TimedWorker)

TICK_NS = round(TICK_S * SECOND_NS)
STALLED_TICKS = 2000  # per worker, and nothing else is going to happen: nobody will ever go on
DRAINED_WORKERS = 256  # beyond, the end is not simulated: there everybody takes leave of everybody


class TimingWorld(ABC, Generic[W]):
    """The clock, and what happens to workers whatever they do. ``density``: the share of parameters sent per step."""

    density = 0.0
    hands_over = False  # a newcomer gets the state when it is a member
    elects = False  # while the supervisor is away, most of the workers go on without the dead
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
        self.workers: dict[int, W] = {}
        self.history = TimingHistory(setting, self.workers)
        self.step_handler: Handler = self._step_over
        self.message_ns = round(self.costs.message_s * SECOND_NS)
        self._ticks = 0
        self._due: list[tuple[int, int, W, Wait]] = []  # waits that are looked at when they have lasted for so long
        self._waits_begun = itertools.count()
        self._alarm_ns = sys.maxsize  # when the next of them is due
        self.keeps_residual = not setting.chosen.codec.startswith(("tether", "dense"))
        for rank in range(scenario.workers):
            self.add(rank, setting.steps)
        self.members: tuple[int, ...] = tuple(self.workers)
        self.faults = TimingFaults(self)

    # ----------------------------------------------------------------------------------------- of each kind

    @abstractmethod
    def make_worker(self, rank: int, goal: int, account: Account) -> W:
        """Return a new worker."""

    @abstractmethod
    def start(self) -> None:
        """Prepare all workers for their first steps."""

    @abstractmethod
    def enter(self, worker: W) -> Turn:
        """Do what comes before the worker's first step."""

    @abstractmethod
    def exchange(self, worker: W) -> Iterable[Wait | None]:
        """Do what follows a local step."""

    @abstractmethod
    def changed(self, now_ns: int, gone: int | None) -> None:
        """Tell the members that they changed: ``gone`` is no more, or a worker is new."""

    @abstractmethod
    def admit(self, worker: W, donor: W, now_ns: int) -> None:
        """Let a newcomer in that has the state of ``donor``."""

    @abstractmethod
    def figures(self, worker: W) -> dict[str, float]:
        """Return what the strategy counts."""

    # ------------------------------------------------------------------------------------ a worker's life

    def end(self, worker: W) -> Turn:
        """Do what follows the worker's last turn: it leaves, or has made all its steps."""
        if worker.leaving:
            yield from worker.driver.leave()
            self.faults.left(worker)
            return
        worker.ended = True
        self.look_whether_all_ended(worker.busy_ns)
        yield from worker.driver.finish()
        worker.finished = True
        self.look_whether_all_finished(worker.busy_ns)
        yield Wait(lambda: False, worker.driver.idle)  # others may still need something of it

    def resume(self, now_ns: int, worker: W, _: None = None) -> None:
        """Go on with the worker's turn, and what follows it, until it trains, waits, or is busy."""
        worker.busy_ns = max(worker.busy_ns, now_ns)
        if worker.wait is not None:
            worker.wait = None
            worker.account.charge(WAIT, worker.busy_ns)
        for wait in worker.turn:
            if wait is None:
                if worker.busy_ns > now_ns:
                    self.at(worker.busy_ns, self.resume, worker)
                    return
            else:
                worker.wait = wait
                wait.idle()
                if not wait.until():
                    self._waits(worker, wait, now_ns)
                    return
                worker.wait = None
                worker.account.charge(WAIT, worker.busy_ns)
        if worker.steps < worker.goal and not worker.leaving:
            self.begin_step(worker, worker.busy_ns)
        elif worker.alive:  # else it has left
            worker.turn = self.end(worker)
            self.resume(now_ns, worker)

    def happened(self, now_ns: int, worker: W, _: None = None) -> None:
        """Look whether a worker that waits may go on, after something has happened to it."""
        wait = worker.wait
        if wait is not None:
            worker.busy_ns = max(worker.busy_ns, now_ns)
            wait.idle()
            if wait.pauses or wait.until():
                self.resume(now_ns, worker)

    def _waits(self, worker: W, wait: Wait, now_ns: int) -> None:
        """See to it that the worker is woken although nothing happens, where it asked for that."""
        if wait.pauses:
            if any(not self.workers[rank].ended for rank in self.members):
                self.at(max(now_ns, worker.busy_ns) + TICK_NS, self._moment, worker, wait)
        elif now_ns < wait.due_s * SECOND_NS < math.inf:
            due_ns = int(wait.due_s * SECOND_NS) + 2
            heappush(self._due, (due_ns, next(self._waits_begun), worker, wait))
            if due_ns < self._alarm_ns:
                self._set_alarm(due_ns)

    def _moment(self, now_ns: int, worker: W, wait: Wait) -> None:
        self.ticked()
        if worker.wait is wait:
            self.happened(now_ns, worker)

    def _set_alarm(self, due_ns: int) -> None:
        self._alarm_ns = due_ns
        self.at(due_ns, self._alarm)

    def _alarm(self, now_ns: int, _: None, __: None) -> None:
        """Wake the workers whose waits are due. There is one alarm for all: nearly all waits are over before."""
        if now_ns != self._alarm_ns:
            return  # another one was set for an earlier time
        self._alarm_ns, due = sys.maxsize, self._due
        while due and (due[0][0] <= now_ns or due[0][2].wait is not due[0][3]):
            _ns, number, worker, wait = heappop(due)
            if worker.wait is not wait or not worker.alive:
                continue
            if worker.frozen_ns > now_ns:
                heappush(due, (worker.frozen_ns, number, worker, wait))
                continue
            self.happened(now_ns, worker)
            if worker.wait is wait:  # it is due later, as the waits before it tell
                self._waits(worker, wait, now_ns)
        if due and due[0][0] < self._alarm_ns:
            self._set_alarm(due[0][0])

    # ------------------------------------------------------------------------------------------ the run

    def at(self, when_ns: int, handler: Handler, worker: W | None = None, item: Any = None) -> None:
        heappush(self.heap, (when_ns, next(self.events), handler, worker, item))

    def run(self) -> None:
        """Run until all is over. Cyclic garbage is not looked for meanwhile: that took a third of the time."""
        collects = gc.isenabled()
        gc.disable()
        try:
            self.start()
            for worker in self.workers.values():
                self.begin(worker, 0)
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
        """Note that time alone has passed for a worker, and raise where nothing else will ever happen."""
        self._ticks = self._ticks + 1 if len(self.heap) + len(self._due) <= len(self.workers) else 0
        if self._ticks > STALLED_TICKS * len(self.workers):
            self._stalled()

    def _stalled(self) -> None:
        waiting = [rank for rank in self.members if not self.workers[rank].ended] or list(self.members)
        raise RunFailed(f"workers {waiting[:8]} wait for ever: that is a bug in the strategy or the simulator")

    def begin(self, worker: W, now_ns: int) -> None:
        """Let the worker begin: its first step follows."""
        worker.turn = self.enter(worker)
        self.resume(now_ns, worker)

    def begin_step(self, worker: W, now_ns: int) -> int:
        """Let the worker train; return when its step will be over, if nothing interferes."""
        worker.training = True
        ends_ns = now_ns + self.pace.step_ns(worker.rank, worker.steps)
        heappush(self.heap, (ends_ns, next(self.events), self.step_handler, worker, None))
        return ends_ns

    def _step_over(self, now_ns: int, worker: W, _: None) -> None:
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
        self._stepped(worker, now_ns)

    def _debt_paid(self, now_ns: int, worker: W, _: None) -> None:
        worker.account.charge(MERGE, now_ns)
        worker.debt_ns = 0  # what came meanwhile has been worked off too: it had nothing else to do
        self._stepped(worker, now_ns)

    def _stepped(self, worker: W, now_ns: int) -> None:
        worker.steps += 1
        self.history.stepped(worker, now_ns, len(self.members), self.figures)
        worker.training = False
        worker.turn = iter(self.exchange(worker))
        self.resume(now_ns, worker)

    def send_residual(self, worker: W) -> None:
        """Give what a leaving worker's codec keeps to another member, and wait for its answer."""
        others = [rank for rank in self.members if rank != worker.rank and self.workers[rank].alive]
        if others:
            nbytes = 4 * self.scenario.parameters
            worker.account.bytes_sent += nbytes
            arrives_ns = self.network.arrival(worker.rank, others[0], nbytes, worker.busy_ns)
            worker.busy_ns = self.network.arrival(others[0], worker.rank, DONE_NBYTES, arrives_ns)
            worker.account.charge(WAIT, worker.busy_ns)

    def look_whether_all_ended(self, now_ns: int) -> None:
        if self.draining or self.over or self._ending or not self._all_ended():
            return
        if len(self.members) > DRAINED_WORKERS:
            self.draining = True
            self.finish(now_ns)
            return
        self._ending = True
        rank = self.members[0]
        told_ns = self.faults.answered_ns(self.network.arrival(rank, SUPERVISOR, DONE_NBYTES, now_ns))
        self.at(self.network.arrival(SUPERVISOR, rank, DONE_NBYTES, told_ns), self._drain_all)

    def _all_ended(self) -> bool:
        workers = map(self.workers.__getitem__, self.members)  # of a death the others must be told first
        return all(worker.ended and worker.alive for worker in workers)

    def _drain_all(self, now_ns: int, _: None, __: None) -> None:
        """Tell all workers that all have ended: the supervisor has heard it."""
        self._ending = False
        if self._all_ended():
            self.draining = True
            self.stir(now_ns)

    def stir(self, now_ns: int) -> None:
        """Let every member look whether it may go on."""
        for rank in self.members:
            self.at(now_ns, self.happened, self.workers[rank])

    def look_whether_all_finished(self, now_ns: int) -> None:
        if self.draining and all(self.workers[rank].finished for rank in self.members):
            self.finish(now_ns)

    def finish(self, now_ns: int) -> None:
        self.over = True
        self.wall_ns = max(now_ns, self.wall_ns)

    def add(self, rank: int, goal: int, now_ns: int = 0) -> W:
        worker = self.workers[rank] = self.make_worker(rank, goal, Account(rank, now_ns, self.setting.trace))
        return worker
