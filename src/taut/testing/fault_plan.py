"""What is to go wrong in a test, and when: seeded, written as it is read, and the same every time.

    plan = FaultPlan(seed=7).kill(2).at_step(30).partition({0, 1}, {2, 3}).between(5, 9)
    found = run_with_faults("train.py", plan, workers=4, strategy="gossip")

A plan is a value: each call gives a new one. ``str(plan)`` is the Python that makes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import dataclass, replace

from taut.core.messages import SUPERVISOR
from taut.errors import Misuse
from taut.simulator.fault_checks import check_fault
from taut.simulator.faults import (
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
    kind_of,
    mentioned,
    newcomers,
)
from taut.specs import did_you_mean
from taut.testing.faults.fault_words import read_calls, told, written


@dataclass(frozen=True, repr=False)
class FaultPlan:
    """A fault, then its time: ``at`` seconds of virtual time, ``at_step`` of its worker, or, for what lasts, ``between``
    two times (with ``at`` alone: until the end). Without a time: from the start. Workers are numbered as they start, and
    -1 is the supervisor.

    >>> plan = FaultPlan(seed=7).kill(2).at_step(30).slow(1, times=10).between(2, 4)
    >>> plan
    FaultPlan(seed=7).kill(2).at_step(30).slow(1, times=10).between(2, 4)
    >>> FaultPlan.parse(str(plan)) == plan
    True
    >>> print(plan.describe())
    worker 2 dies at its step 30
    from 2 s to 4 s: worker 1 takes 10 times as long for a step
    """

    seed: int = 0
    faults: tuple[Fault, ...] = ()

    # ------------------------------------------------------------------------------------------------ what happens

    def kill(self, rank: int) -> FaultPlan:
        """Worker ``rank`` dies, without a word."""
        return self._with(Fail(rank, 0.0))

    def pause(self, rank: int, *, for_s: float) -> FaultPlan:
        """Worker ``rank`` stands still, as if its process were stopped, and goes on after ``for_s``."""
        return self._with(Pause(rank, 0.0, for_s))

    def restart(self, rank: int, *, after_s: float = 1.0) -> FaultPlan:
        """Worker ``rank`` dies, and ``after_s`` later its script is started again, as a new worker."""
        return self._with(Restart(rank, after_s))

    def join(self, count: int = 1) -> FaultPlan:
        """So many more workers come."""
        return self._with(Join(count, 0.0))

    def leave(self, rank: int) -> FaultPlan:
        """Worker ``rank`` is asked to go, in order, as by ``taut drain``."""
        return self._with(Leave(rank))

    def kill_supervisor(self, *, back_after_s: float | None = 1.0, moved: bool = False) -> FaultPlan:
        """The supervisor dies; it is back after so long (None: never), ``moved`` to another address or not."""
        return self._with(KillSupervisor(back_after_s, moved=moved))

    def slow(self, rank: int, *, times: float) -> FaultPlan:
        """Worker ``rank`` takes ``times`` as long for a step."""
        return self._with(Slow(rank, times))

    def partition(self, *groups: Collection[int]) -> FaultPlan:
        """Only members of one group hear each other. The supervisor is on worker 0's side, unless a group has -1."""
        return self._with(Partition(tuple(tuple(sorted(group)) for group in groups)))

    def cut(self, one: int, other: int) -> FaultPlan:
        """Nothing gets through between these two, either way."""
        return self._with(Loss(one, other))

    def one_way(self, sender: int, to: int, *, p: float = 1.0) -> FaultPlan:
        """What ``sender`` sends to ``to`` is lost (with probability ``p``), and nothing of what it receives from it."""
        return self._with(Loss(sender, to, p, one_way=True))

    def drop(self, one: int | None = None, other: int | None = None, *, p: float) -> FaultPlan:
        """Each message between these two (None: any) is lost with probability ``p``."""
        return self._with(Loss(one, other, p))

    def throttle(self, one: int, other: int, *, share: float = 0.01) -> FaultPlan:
        """The link between these two carries ``share`` of what it did."""
        return self._with(Throttle(one, other, share))

    def duplicate(self, one: int | None = None, other: int | None = None, *, p: float, by_s: float = 0.05) -> FaultPlan:
        """Messages between these two (None: any) arrive twice with probability ``p``, up to ``by_s`` apart."""
        return self._with(Repeat(one, other, p, by_s))

    def reorder(self, one: int | None = None, other: int | None = None, *, p: float, by_s: float = 0.05) -> FaultPlan:
        """Messages between these two (None: any) are up to ``by_s`` late with probability ``p``: others overtake them."""
        return self._with(Reorder(one, other, p, by_s))

    # --------------------------------------------------------------------------------------------------- and when

    def at(self, time_s: float) -> FaultPlan:
        """The last fault happens, or begins, at this time."""
        last = self._last("at")
        if isinstance(last, Moment):
            return self._retimed(replace(last, at_s=time_s, at_step=None))
        return self._retimed(replace(last, from_s=time_s))

    def at_step(self, step: int) -> FaultPlan:
        """The last fault happens when its worker has made so many steps (of a join or the supervisor: the first that
        has)."""
        last = self._last("at_step")
        if not isinstance(last, Moment):
            raise Misuse(f"{kind_of(last)} at step {step}", "a time for what lasts", "use .between(2, 4) or .at(2)")
        return self._retimed(replace(last, at_s=0.0, at_step=step))

    def between(self, from_s: float, until_s: float) -> FaultPlan:
        """The last fault lasts from one time to the other."""
        last = self._last("between")
        if isinstance(last, Moment):
            raise Misuse(f"{kind_of(last)} between {from_s} and {until_s}", "one moment", "use .at(2) or .at_step(30)")
        return self._retimed(replace(last, from_s=from_s, until_s=until_s))

    # ---------------------------------------------------------------------------------------------------- as a whole

    def describe(self) -> str:
        """One line for each fault."""
        return "\n".join(told(fault) for fault in self.faults) or "nothing goes wrong"

    def check(self, workers: int) -> None:
        """``Misuse`` where it speaks of a worker that there is not, with ``workers`` at the start."""
        most = workers + sum(newcomers(fault) for fault in self.faults)
        for fault in self.faults:
            for rank in mentioned(fault):
                if not 0 <= rank < most:
                    raise Misuse(f"{written(fault)[1:]} with {workers} workers", f"a worker from 0 to {most - 1}")

    @classmethod
    def parse(cls, text: str) -> FaultPlan:
        """The plan that ``str`` wrote down."""
        seed, calls = read_calls(text)
        known = [name for name in vars(cls) if not name.startswith("_") and name not in ("parse", "random", "faults")]
        try:
            plan = cls(**seed)  # type: ignore[arg-type]  # checked by the constructor
            for name, unnamed, named in calls:
                if name not in known or name in ("describe", "check", "seed"):
                    raise Misuse(f"fault {name!r}", f"one of {', '.join(known)}", did_you_mean(name, known))
                inspect.signature(getattr(plan, name)).bind(*unnamed, **named)
                plan = getattr(plan, name)(*unnamed, **named)
        except TypeError as error:
            raise Misuse(f"fault plan {text!r}", "calls that can be made", str(error)) from None
        return plan

    @classmethod
    def random(cls, seed: int, workers: int, duration_s: float, strategy: str = "async") -> FaultPlan:
        """Some faults that a run of ``workers`` for about ``duration_s`` must survive (see ``random_plans``)."""
        from taut.testing.faults.random_plans import random_plan

        return random_plan(seed, workers, duration_s, strategy)

    def __post_init__(self) -> None:
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or self.seed < 0:
            raise Misuse(f"FaultPlan(seed={self.seed!r})", "a whole number from 0 up")
        for fault in self.faults:
            for name in ("rank", "one", "other"):
                rank = getattr(fault, name, None)
                if rank is not None and rank < (0 if name == "rank" else SUPERVISOR):
                    raise Misuse(written(fault)[1:], "a worker's rank from 0 up")
            check_fault(fault)

    def __str__(self) -> str:
        return f"FaultPlan(seed={self.seed}){''.join(written(fault) for fault in self.faults)}"

    __repr__ = __str__

    def _with(self, fault: Fault) -> FaultPlan:
        return replace(self, faults=(*self.faults, fault))

    def _retimed(self, fault: Fault) -> FaultPlan:
        return replace(self, faults=(*self.faults[:-1], fault))

    def _last(self, verb: str) -> Fault:
        if not self.faults:
            raise Misuse(f"{verb}() of a plan without a fault", "a fault first", "as in FaultPlan().kill(2).at_step(30)")
        return self.faults[-1]
