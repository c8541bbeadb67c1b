"""Many workers in virtual time, event by event: steps, messages, faults. What a worker does with them is its kind's
affair: ``timing_methods.py`` for methods, ``timing_streams.py`` for streams.

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
from taut.errors import Misuse, RunFailed
from taut.simulator.dice import Dice
from taut.simulator.faults import Churn, Fail, Fault, Pause, kind_of
from taut.simulator.network import Network
from taut.simulator.result import Point
from taut.simulator.speeds import Pace
from taut.simulator.timing_accounts import COMPUTE, MERGE, WAIT, Account
from taut.simulator.timing_noise import Noise
from taut.simulator.timing_worker import Setting, Worker

Handler = Callable[[int, Any, Any], None]  # the time, the worker, and what it is about

SECOND_NS = 1_000_000_000
MOST_POINTS = 4096  # of the history, all workers together
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
        self.network = Network(scenario.links, Dice(scenario.seed, "network"))
        self.pace = Pace(scenario.speeds, Dice(scenario.seed, "speeds"))
        self.heap: list[tuple[int, int, Handler, Any, Any]] = []
        self.events = itertools.count()
        self.now_ns = self.wall_ns = self.version = 0
        self.over = False
        self.draining = False
        self._ending = False  # all have ended, and the supervisor is being told
        self.dead: set[int] = set()
        self.gone: dict[int, str] = {}
        self.history: list[Point] = []
        self.workers: dict[int, Worker] = {}
        self.steps_made = 0
        planned = setting.steps * scenario.workers
        self._quarters: dict[int, tuple[int, dict[int, tuple[int, int]]] | None]
        self._quarters = dict.fromkeys((planned // 4, 3 * planned // 4))  # when so many were made, and what was sent
        self.step_handler: Handler = self._step_over
        self.message_ns = round(self.costs.message_s * SECOND_NS)
        self._point_every = max(1, setting.steps // max(2, min(64, MOST_POINTS // scenario.workers)))
        self._told_at = -1
        self._ticks = 0
        for rank in range(scenario.workers):
            self._add(rank, setting.steps)
        self.members: tuple[int, ...] = tuple(self.workers)
        self._next_rank = scenario.workers
        for fault in scenario.faults:
            self._plan(fault)

    def middle(self) -> dict[str, float]:
        """The middle half of the run, which its start and its end do not disturb: steps per second of all workers, and
        the bytes that the busiest of them sends per step. Empty where it never came to that."""
        before, after = [*(self._quarters[steps] for steps in sorted(self._quarters)), None][:2]
        if before is None or after is None or after[0] <= before[0]:
            return {}
        made = {rank: (after[1][rank][0] - steps, after[1][rank][1] - sent) for rank, (steps, sent) in before[1].items()}
        return {
            "steps_per_s": sum(steps for steps, _ in made.values()) * 1e9 / (after[0] - before[0]),
            "busiest_nbytes": max(sent / max(1, steps) for steps, sent in made.values()),
        }

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
        self.steps_made += 1
        if self.steps_made in self._quarters:
            taken = {rank: (each.steps, each.account.bytes_sent) for rank, each in self.workers.items()}
            self._quarters[self.steps_made] = (self.now_ns, taken)
        if worker.steps % self._point_every == 0 or worker.steps == worker.goal:
            samples = worker.steps * self.scenario.batch
            staleness = self.figures(worker).get("staleness", 1.0)
            sent = worker.account.bytes_sent
            self.history.append(Point(now_ns * 1e-9, worker.rank, worker.steps, samples, sent, staleness=staleness))
        if self.setting.progress is not None:
            percent = 100 * self.steps_made // max(1, len(self.members) * self.setting.steps)
            if percent != self._told_at:
                self._told_at = percent
                self.setting.progress(min(1.0, percent / 100))

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

    # --------------------------------------------------------------------------------------------- faults

    def _add(self, rank: int, goal: int, now_ns: int = 0) -> Worker:
        worker = self.workers[rank] = Worker(rank, goal, Account(rank, now_ns, self.setting.trace))
        return worker

    def _plan(self, fault: Fault) -> None:
        if not isinstance(fault, Churn) or fault.at_step is not None:
            what = f"{kind_of(fault)}{'' if not isinstance(fault, Churn) else ' at a step'} where only time is simulated"
            raise Misuse(what, "fail, pause or join, at a time", "simulate numerically, without --timing-only")
        at_ns = round(fault.at_s * SECOND_NS)
        if isinstance(fault, Fail | Pause):
            if not 0 <= fault.rank < self.scenario.workers:
                raise Misuse(
                    f"{type(fault).__name__.lower()} of worker {fault.rank}", f"0 to {self.scenario.workers - 1}"
                )
            self.at(at_ns, self._fail if isinstance(fault, Fail) else self._pause, None, fault)
            return
        if not self.setting.chosen.admits_late:
            strategy = self.setting.chosen.strategy.name
            raise Misuse(f"join with strategy {strategy!r}", "a strategy that workers can join", "try averaging or async")
        for _ in range(fault.count):
            self.at(at_ns, self._join, None, None)

    def _note(self, rank: int, what: str, now_ns: int) -> None:
        if self.setting.trace is not None:
            self.setting.trace.instant(rank, what, now_ns)

    def _fail(self, now_ns: int, _: None, fault: Fail) -> None:
        worker = self.workers[fault.rank]
        if not worker.alive or worker.finished:
            return
        worker.alive = False
        worker.account.charge(COMPUTE if worker.training else WAIT, now_ns)
        self.dead.add(worker.rank)
        self.gone[worker.rank] = f"failed at {fault.at_s:g} s"
        self._note(worker.rank, "fails", now_ns)
        if not any(each.alive for each in self.workers.values()):
            self.finish(now_ns)
            return
        self.at(now_ns + round(self.setting.detect_s * SECOND_NS), self._noticed, None, worker.rank)

    def _noticed(self, now_ns: int, _: None, rank: int) -> None:
        self.members = tuple(member for member in self.members if member != rank)
        self.version += 1
        self._note(rank, "is noticed to be gone", now_ns)
        if self.members:
            self.changed(now_ns, rank)
            self.look_whether_all_ended(now_ns)
            self.look_whether_all_finished(now_ns)

    def _pause(self, now_ns: int, _: None, fault: Pause) -> None:
        worker = self.workers[fault.rank]
        if worker.alive and not worker.finished:
            for_ns = round(fault.for_s * SECOND_NS)
            worker.frozen_ns = max(worker.frozen_ns, now_ns + for_ns)
            if worker.training:
                worker.paused_ns += for_ns
            self._note(worker.rank, "stands still", now_ns)

    def _join(self, now_ns: int, _: None, rank: int | None) -> None:
        """A newcomer takes over the state of the lowest rank that is alive."""
        donor = min((each for each in self.members if self.workers[each].alive), default=None)
        if self.draining or donor is None:
            return  # it comes too late
        if rank is None:
            rank, self._next_rank = self._next_rank, self._next_rank + 1
            self._note(rank, "joins", now_ns)
        if self.hands_over:  # when it is among the members
            self._joined(now_ns, None, (rank, donor))
            return
        arrives_ns = self.network.arrival(donor, rank, 4 * self.scenario.parameters, now_ns)
        self.at(arrives_ns, self._joined, None, (rank, donor))

    def _joined(self, now_ns: int, _: None, item: tuple[int, int]) -> None:
        rank, donor = item
        if not self.workers[donor].alive:
            self._join(now_ns, None, rank)
        elif not self.draining:
            behind = min(self.workers[each].steps for each in self.members)
            worker = self._add(rank, max(1, self.setting.steps - behind), now_ns)
            self.members = (*self.members, rank)
            self.version += 1
            self.admit(worker, self.workers[donor], now_ns)
            self._note(rank, "is ready", now_ns)
