"""Carries the faults of a scenario out, on a script's run in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from taut.simulator.faults import (
    Churn,
    Fail,
    Fault,
    Join,
    KillSupervisor,
    Leave,
    Loss,
    Moment,
    Partition,
    Pause,
    Reorder,
    Repeat,
    Restart,
    Slow,
    Throttle,
    mentioned,
)
from taut.simulator.script.fibers import NS

if TYPE_CHECKING:
    from taut.simulator.script.connection import VirtualEntrance
    from taut.simulator.script.run import ScriptRun


class Injection:
    """Workers are numbered as they start, from 0: those of a ``Join`` and a ``Restart`` follow in the order of time. What
    a ``Partition`` or a ``Loss`` does is the network's (``Disruption``)."""

    def __init__(self, run: ScriptRun) -> None:
        self.run, self.world = run, run.world
        self._at_step: list[tuple[int | None, int, Callable[[], None]]] = []  # whose, which, what
        self._happened: set[int] = set()  # ids of faults
        faults = run.scenario.faults
        run.supervisor.keeps = any(isinstance(fault, KillSupervisor) for fault in faults)
        for fault in faults:
            if isinstance(fault, Churn | Restart | Leave | KillSupervisor):
                self._plan(fault)
            else:
                self._plan_extent(fault)

    def missed(self) -> tuple[Fault, ...]:
        """Return the faults that did not happen, since the run or their worker ended before."""
        looked_up = Partition | Loss | Repeat | Reorder  # for each message, from their beginning on
        return tuple(
            fault
            for fault in self.run.scenario.faults
            if id(fault) not in self._happened
            and not (isinstance(fault, looked_up) and round(fault.from_s * NS) < self.world.now_ns)
        )

    def _counted(self, fault: Fault, action: Callable[[], None]) -> Callable[[], None]:
        """Return ``action``, which also notes that ``fault`` happened, unless its workers or the run ended before."""

        def act() -> None:
            entrances = self.run.entrances
            going = [place < len(entrances) and not entrances[place].fiber.done for place in mentioned(fault)]
            if self.run.supervisor.outcome is None and all(going):
                self._happened.add(id(fault))
            action()

        return act

    def stepped(self, place: int, steps: int) -> None:
        """The worker at ``place`` has made so many steps. Called by its fiber, so what follows happens after it parks."""
        if not self._at_step:
            return
        due = [each for each in self._at_step if each[0] in (None, place) and steps >= each[1]]
        self._at_step = [each for each in self._at_step if each not in due]
        for _, _, action in due:
            self.world.at(self.world.now_ns, action)

    def _plan(self, fault: Moment) -> None:
        action = self._counted(fault, self._action(fault))
        if fault.at_step is None:
            self.world.at(round(fault.at_s * NS), action)
        else:
            whose = None if isinstance(fault, Join | KillSupervisor) else fault.rank
            self._at_step.append((whose, fault.at_step, action))

    def _action(self, fault: Moment) -> Callable[[], None]:
        match fault:
            case Fail(rank):
                return lambda: self.kill(rank)
            case Pause(rank, for_s=for_s):
                return lambda: self._pause(rank, round(for_s * NS))
            case Join(count):
                return lambda: self._join(count)
            case Restart(rank, after_s):
                return lambda: self._restart(rank, round(after_s * NS))
            case Leave(rank):
                return lambda: self._dismiss(rank)
            case KillSupervisor():
                return lambda: self._kill_supervisor(fault)

    def _plan_extent(self, fault: Fault) -> None:
        match fault:
            case Slow(rank, times, from_s, until_s):
                slow = self._counted(fault, lambda: self._slow(rank, times))
                self._between(from_s, until_s, slow, lambda: self._slow(rank, 1.0 / times))
            case Throttle(one, other, share, from_s, until_s):
                network = self.run.network
                self._between(
                    from_s,
                    until_s,
                    self._counted(fault, lambda: network.throttle(one, other, share)),
                    lambda: network.throttle(one, other, None),
                )
            case _:
                pass  # looked up for each message

    def _between(self, from_s: float, until_s: float | None, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self.world.at(round(from_s * NS), begin)
        if until_s is not None:
            self.world.at(round(until_s * NS), end)

    # ---------------------------------------------------------------------------------------------------- what happens

    def kill(self, place: int) -> None:
        self._note(place, "fail")
        if place < len(self.run.entrances):
            entrance = self.run.entrances[place]
            entrance.transport.close()
            entrance.fiber.kill()
            self.run.supervisor.hung_up(entrance.transport)
            self._tell_of(entrance)

    def _tell_of(self, entrance: VirtualEntrance) -> None:
        """Whoever started it tells the supervisor that it will not come; the end of one that came must be noticed."""
        if entrance.address in self.run.switch.ranks or self.run.supervisor.outcome is not None:
            return
        if self.run.supervisor.away:
            self.world.at(self.world.now_ns + NS, lambda: self._tell_of(entrance))
        else:
            self.run.supervisor.exited(entrance.pid, "killed by a plan of faults")

    def _pause(self, place: int, duration_ns: int) -> None:
        """As if the process were stopped: it neither computes nor takes in nor sends anything for so long."""
        self._note(place, "pause")
        if place < len(self.run.entrances):
            entrance = self.run.entrances[place]
            entrance.transport.frozen_until_ns = self.world.now_ns + duration_ns
            entrance.fiber.freeze(duration_ns)

    def _join(self, count: int) -> None:
        for _ in range(count):
            self.run.start_worker()

    def _restart(self, place: int, after_ns: int) -> None:
        self.kill(place)
        self.world.at(self.world.now_ns + after_ns, self.run.start_worker)

    def _dismiss(self, place: int) -> None:
        self._note(place, "leave")
        address = self.run.entrances[place].address if place < len(self.run.entrances) else ""
        if address in self.run.switch.ranks and not self.run.supervisor.away:
            self.run.supervisor.dismiss(self.run.switch.ranks[address], "as the plan says")

    def _slow(self, place: int, times: float) -> None:
        self._note(place, "slow")
        self.run.slowed[place] = self.run.slowed.get(place, 1.0) * times

    def _kill_supervisor(self, fault: KillSupervisor) -> None:
        supervisor = self.run.supervisor
        if supervisor.outcome is not None or supervisor.away:
            return
        self._note(-1, "fail")
        supervisor.kill(loses=fault.moved)
        if fault.back_after_s is not None:
            self.world.at(self.world.now_ns + round(fault.back_after_s * NS), self._supervisor_returns)

    def _supervisor_returns(self) -> None:
        self._note(-1, "back")
        self.run.supervisor.come_back()

    def _note(self, place: int, what: str) -> None:
        if self.run.trace is not None:
            self.run.trace.instant(place, what, self.world.now_ns)
