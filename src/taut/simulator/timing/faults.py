"""Faults where only time is simulated: workers that fail, stand still, join or leave, and a supervisor that is away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from taut.core.messages import SUPERVISOR
from taut.errors import Misuse
from taut.simulator.faults import Churn, Departure, Fail, Fault, Join, KillSupervisor, Pause, kind_of
from taut.simulator.timing.accounts import COMPUTE, WAIT
from taut.simulator.timing.election import elected_s
from taut.simulator.timing.worker import SECOND_NS

if TYPE_CHECKING:
    from taut.simulator.timing.worker import TimedWorker
    from taut.simulator.timing.world import Handler, TimingWorld

DONE_NBYTES = 64  # what a worker and the supervisor say to each other at the end


class TimingFaults:
    """Plans the scenario's faults, and makes them happen to the workers of ``world``."""

    def __init__(self, world: TimingWorld[Any]) -> None:
        self._world = world
        self._next_rank = world.scenario.workers
        self._happened: set[int] = set()  # ids of faults
        self._away_ns = (0, 0)  # from when to when there is no supervisor
        for fault in world.scenario.faults:
            self._plan(fault)

    def missed(self) -> tuple[Fault, ...]:
        """Return the faults that did not happen, since the run or their worker ended before."""
        return tuple(fault for fault in self._world.scenario.faults if id(fault) not in self._happened)

    def _plan(self, fault: Fault) -> None:
        world = self._world
        if isinstance(fault, KillSupervisor) and fault.back_after_s is not None and fault.at_step is None:
            world.at(round(fault.at_s * SECOND_NS), self._supervisor, None, fault)
            return
        if not isinstance(fault, Churn | Departure) or fault.at_step is not None:
            at_step = " at a step" if isinstance(fault, Churn | Departure) else ""
            what = f"{kind_of(fault)}{at_step} where only time is simulated"
            expected = "fail, pause, join, leave, or a supervisor that comes back, at a time"
            raise Misuse(what, expected, "simulate numerically, without --timing-only")
        at_ns = round(fault.at_s * SECOND_NS)
        if isinstance(fault, Fail | Pause | Departure):
            if not 0 <= fault.rank < world.scenario.workers:
                raise Misuse(
                    f"{type(fault).__name__.lower()} of worker {fault.rank}", f"0 to {world.scenario.workers - 1}"
                )
            handlers: dict[type[Fault], Handler] = {Fail: self._fail, Pause: self._pause, Departure: self._leave}
            world.at(at_ns, handlers[type(fault)], None, fault)
            return
        if not world.setting.chosen.admits_late:
            strategy = world.setting.chosen.strategy.name
            raise Misuse(f"join with strategy {strategy!r}", "a strategy that workers can join", "try averaging or async")
        for _ in range(fault.count):
            world.at(at_ns, self._arrive, None, fault)

    def _supervisor(self, now_ns: int, _: None, fault: KillSupervisor) -> None:
        assert fault.back_after_s is not None
        self._happened.add(id(fault))
        self._away_ns = (now_ns, now_ns + round(fault.back_after_s * SECOND_NS))

    def answered_ns(self, at_ns: int) -> int:
        """Return when the supervisor acts on what it is told at ``at_ns``: when it is back, if it is away then."""
        return self._away_ns[1] if self._away_ns[0] <= at_ns < self._away_ns[1] else at_ns

    def _noticed_ns(self, now_ns: int) -> int:
        """Return when the others know of a death: by the supervisor, or, while that is away, by an election."""
        world, detect_ns = self._world, round(self._world.setting.detect_s * SECOND_NS)
        away_ns, back_ns = self._away_ns
        noticed_ns = now_ns + detect_ns
        if not away_ns <= noticed_ns < back_ns:
            return noticed_ns
        dead = [rank for rank in world.members if not world.workers[rank].alive]
        agreed_s = elected_s(world.members, dead) if world.elects else None
        elected_ns = max(now_ns, away_ns + detect_ns) + round((agreed_s or 0.0) * SECOND_NS)
        return elected_ns if agreed_s is not None and elected_ns < back_ns + detect_ns else back_ns + detect_ns

    def _note(self, rank: int, what: str, now_ns: int) -> None:
        world = self._world
        if world.setting.trace is not None:
            world.setting.trace.instant(rank, what, now_ns)

    def _fail(self, now_ns: int, _: None, fault: Fail) -> None:
        world = self._world
        worker = world.workers[fault.rank]
        if not worker.alive or worker.finished:
            return
        self._happened.add(id(fault))
        worker.alive = False
        worker.account.charge(COMPUTE if worker.training else WAIT, now_ns)
        world.dead.add(worker.rank)
        world.gone[worker.rank] = f"failed at {fault.at_s:g} s"
        self._note(worker.rank, "fails", now_ns)
        if not any(each.alive for each in world.workers.values()):
            world.finish(now_ns)
            return
        world.at(self._noticed_ns(now_ns), self._noticed, None, worker.rank)

    def _noticed(self, now_ns: int, _: None, rank: int) -> None:
        world = self._world
        world.members = tuple(member for member in world.members if member != rank)
        world.version += 1
        self._note(rank, "is noticed to be gone", now_ns)
        if world.members:
            world.changed(now_ns, rank)
            world.look_whether_all_ended(now_ns)
            world.look_whether_all_finished(now_ns)

    def _leave(self, now_ns: int, _: None, fault: Departure) -> None:
        worker = self._world.workers[fault.rank]
        if worker.alive and not worker.ended:
            self._happened.add(id(fault))
            worker.leaving = True
            self._note(worker.rank, "is asked to leave", now_ns)
            self._world.at(now_ns, self._world.happened, worker)

    def left(self, worker: TimedWorker) -> None:
        """Let a worker go that has handed everything over; the others are told by the supervisor."""
        world, now_ns = self._world, worker.busy_ns
        worker.alive = False
        world.gone[worker.rank] = "left"
        self._note(worker.rank, "leaves", now_ns)
        told_ns = self.answered_ns(world.network.arrival(worker.rank, SUPERVISOR, DONE_NBYTES, now_ns))
        rank = next((rank for rank in world.members if rank != worker.rank), worker.rank)
        world.at(world.network.arrival(SUPERVISOR, rank, DONE_NBYTES, told_ns), self._noticed, None, worker.rank)

    def _pause(self, now_ns: int, _: None, fault: Pause) -> None:
        worker = self._world.workers[fault.rank]
        if worker.alive and not worker.finished:
            self._happened.add(id(fault))
            for_ns = round(fault.for_s * SECOND_NS)
            worker.frozen_ns = max(worker.frozen_ns, now_ns + for_ns)
            if worker.training:
                worker.paused_ns += for_ns
            self._note(worker.rank, "stands still", now_ns)

    def _donor(self) -> int | None:
        """Return the lowest rank that is alive; None where a newcomer comes too late."""
        world = self._world
        alive = (each for each in world.members if world.workers[each].alive)
        return None if world.draining else min(alive, default=None)

    def _arrive(self, now_ns: int, _: None, fault: Join) -> None:
        if self.answered_ns(now_ns) > now_ns:
            self._world.at(self.answered_ns(now_ns), self._arrive, None, fault)
        elif self._donor() is not None:
            self._happened.add(id(fault))
            rank, self._next_rank = self._next_rank, self._next_rank + 1
            self._note(rank, "joins", now_ns)
            self._join(now_ns, None, rank)

    def _join(self, now_ns: int, _: None, rank: int) -> None:
        """Give a newcomer the state of the lowest rank that is alive."""
        world, donor = self._world, self._donor()
        if donor is None:
            return
        if world.hands_over:  # when it is among the members
            self._joined(now_ns, None, (rank, donor))
            return
        arrives_ns = world.network.arrival(donor, rank, 4 * world.scenario.parameters, now_ns)
        world.at(arrives_ns, self._joined, None, (rank, donor))

    def _joined(self, now_ns: int, _: None, item: tuple[int, int]) -> None:
        world = self._world
        rank, donor = item
        if not world.workers[donor].alive:
            self._join(now_ns, None, rank)
        elif not world.draining:
            behind = min(world.workers[each].steps for each in world.members)
            worker = world.add(rank, max(1, world.setting.steps - behind), now_ns)
            world.members = (*world.members, rank)
            world.version += 1
            world.admit(worker, world.workers[donor], now_ns)
            self._note(rank, "is ready", now_ns)
