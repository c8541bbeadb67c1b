"""Carry out the faults of a scenario on a script's run in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from taut.simulator import faults as f
from taut.simulator.script.fibers import NS

if TYPE_CHECKING:
    from taut.simulator.script.connection import VirtualConnector
    from taut.simulator.script.run import ScriptRun


class FaultInjection:
    """Workers are numbered as they start, from 0: those of a ``Join`` and a ``Restart`` follow in the order of time.
    ``NetworkFaults`` handles a ``Partition`` or a ``Loss``."""

    def __init__(self, run: ScriptRun) -> None:
        self.run, self.loop = run, run.loop
        self._at_step: list[tuple[int | None, int, Callable[[], None]]] = []  # worker, step, action
        self._happened: set[int] = set()  # ids of faults
        faults = run.scenario.faults
        run.supervisor.keeps = any(isinstance(fault, f.KillSupervisor) for fault in faults)
        for fault in faults:
            if isinstance(fault, f.Churn | f.Restart | f.Departure | f.KillSupervisor):
                self._plan(fault)
            else:
                self._plan_extent(fault)

    def missed(self) -> tuple[f.Fault, ...]:
        """Return the faults that did not happen, since the run or their worker ended before."""
        per_message = f.Partition | f.Loss | f.Repeat | f.Reorder  # looked up for each message, from their beginning on
        return tuple(
            fault
            for fault in self.run.scenario.faults
            if id(fault) not in self._happened
            and not (isinstance(fault, per_message) and round(fault.from_s * NS) < self.loop.now_ns)
        )

    def _counted(self, fault: f.Fault, action: Callable[[], None]) -> Callable[[], None]:
        """Return ``action``, which also notes that ``fault`` happened, unless its workers or the run ended before."""

        def act() -> None:
            connectors = self.run.connectors
            going = [worker < len(connectors) and not connectors[worker].fiber.done for worker in f.mentioned(fault)]
            if self.run.supervisor.outcome is None and all(going):
                self._happened.add(id(fault))
            action()

        return act

    def stepped(self, worker: int, steps: int) -> None:
        """Plan the faults that are due after ``steps`` steps of ``worker``, for when its fiber, which calls this,
        parks."""
        if not self._at_step:
            return
        due = [each for each in self._at_step if each[0] in (None, worker) and steps >= each[1]]
        self._at_step = [each for each in self._at_step if each not in due]
        for _, _, action in due:
            self.loop.at(self.loop.now_ns, action)

    def _plan(self, fault: f.Moment) -> None:
        action = self._counted(fault, self._action(fault))
        if fault.at_step is None:
            self.loop.at(round(fault.at_s * NS), action)
        else:
            whose = None if isinstance(fault, f.Join | f.KillSupervisor) else fault.rank
            self._at_step.append((whose, fault.at_step, action))

    def _action(self, fault: f.Moment) -> Callable[[], None]:
        match fault:
            case f.Fail(rank):
                return lambda: self.kill(rank)
            case f.Pause(rank, for_s=for_s):
                return lambda: self._pause(rank, round(for_s * NS))
            case f.Join(count):
                return lambda: self._join(count)
            case f.Restart(rank, after_s):
                return lambda: self._restart(rank, round(after_s * NS))
            case f.Departure(rank):
                return lambda: self._dismiss(rank)
            case f.KillSupervisor():
                return lambda: self._kill_supervisor(fault)

    def _plan_extent(self, fault: f.Fault) -> None:
        match fault:
            case f.Slow(rank, times):
                self._between(fault, lambda: self._slow(rank, times), lambda: self._slow(rank, 1.0 / times))
            case f.Throttle(one, other, share):
                throttle = partial(self.run.network.throttle, one, other)
                self._between(fault, lambda: throttle(share), lambda: throttle(None))
            case _:
                pass  # looked up for each message

    def _between(self, fault: f.Slow | f.Throttle, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self.loop.at(round(fault.from_s * NS), self._counted(fault, begin))
        if fault.until_s is not None:
            self.loop.at(round(fault.until_s * NS), end)

    def kill(self, worker: int) -> None:
        self._note(worker, "fail")
        if worker < len(self.run.connectors):
            connector = self.run.connectors[worker]
            connector.transport.close()
            connector.fiber.kill()
            self.run.supervisor.disconnected(connector.transport)
            self._report_exit(connector)

    def _report_exit(self, connector: VirtualConnector) -> None:
        """Tell the supervisor, as a launcher would, that a worker will not come; one that joined must be missed."""
        if connector.address in self.run.switch.ranks or self.run.supervisor.outcome is not None:
            return
        if self.run.supervisor.away:
            self.loop.at(self.loop.now_ns + NS, lambda: self._report_exit(connector))
        else:
            self.run.supervisor.exited(connector.pid, "killed by a plan of faults")

    def _pause(self, worker: int, duration_ns: int) -> None:
        """Stop the worker for that long, as if its process were stopped: it neither computes nor receives nor sends."""
        self._note(worker, "pause")
        if worker < len(self.run.connectors):
            connector = self.run.connectors[worker]
            connector.transport.frozen_until_ns = self.loop.now_ns + duration_ns
            connector.fiber.freeze(duration_ns)

    def _join(self, count: int) -> None:
        for _ in range(count):
            self.run.start_worker()

    def _restart(self, worker: int, after_ns: int) -> None:
        self.kill(worker)
        self.loop.at(self.loop.now_ns + after_ns, self.run.start_worker)

    def _dismiss(self, worker: int) -> None:
        self._note(worker, "leave")
        address = self.run.connectors[worker].address if worker < len(self.run.connectors) else ""
        if address in self.run.switch.ranks and not self.run.supervisor.away:
            self.run.supervisor.dismiss(self.run.switch.ranks[address], "as the plan says")

    def _slow(self, worker: int, times: float) -> None:
        self._note(worker, "slow")
        self.run.slowed[worker] = self.run.slowed.get(worker, 1.0) * times

    def _kill_supervisor(self, fault: f.KillSupervisor) -> None:
        supervisor = self.run.supervisor
        if supervisor.outcome is not None or supervisor.away:
            return
        self._note(-1, "fail")
        supervisor.kill(lose_messages=fault.moved)
        if fault.back_after_s is not None:
            self.loop.at(self.loop.now_ns + round(fault.back_after_s * NS), self._restart_supervisor)

    def _restart_supervisor(self) -> None:
        self._note(-1, "back")
        self.run.supervisor.restart()

    def _note(self, worker: int, what: str) -> None:
        if self.run.trace is not None:
            self.run.trace.instant(worker, what, self.loop.now_ns)
