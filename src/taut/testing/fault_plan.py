"""The faults of a test, and when they happen: seeded, printed as the code that makes them, and the same every time.

    plan = FaultPlan(seed=7).kill(2).at_step(30).partition({0, 1}, {2, 3}).between(5, 9)
    found = run_with_faults("train.py", plan, workers=4, strategy="gossip")

A plan is a value: each call returns a new one. ``str(plan)`` is the Python that makes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import dataclass, replace

from taut.errors import Misuse
from taut.simulator import faults as f
from taut.specs import did_you_mean
from taut.testing.faults.fault_words import read_calls, told, written


@dataclass(frozen=True, repr=False)
class FaultPlan:
    """Each fault is followed by its time: ``at`` seconds of virtual time, ``at_step`` of its worker or, for a fault that
    lasts, ``between`` two times (with ``at`` alone: until the end). Without a time: from the start. Workers are numbered
    as they start, and -1 is the supervisor.

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
    faults: tuple[f.Fault, ...] = ()

    # ------------------------------------------------------------------------------------------------------ faults

    def kill(self, rank: int) -> FaultPlan:
        """Kill worker ``rank``."""
        return self._with(f.Fail(rank, 0.0))

    def pause(self, rank: int, *, for_s: float) -> FaultPlan:
        """Stop worker ``rank``, as if its process were stopped, for ``for_s``."""
        return self._with(f.Pause(rank, 0.0, for_s))

    def restart(self, rank: int, *, after_s: float = 1.0) -> FaultPlan:
        """Kill worker ``rank``, and start its script again ``after_s`` later, as a new worker."""
        return self._with(f.Restart(rank, after_s))

    def join(self, count: int = 1) -> FaultPlan:
        """Start ``count`` more workers."""
        return self._with(f.Join(count, 0.0))

    def leave(self, rank: int) -> FaultPlan:
        """Ask worker ``rank`` to leave, as ``taut drain`` does."""
        return self._with(f.Departure(rank))

    def kill_supervisor(self, *, back_after_s: float | None = 1.0, moved: bool = False) -> FaultPlan:
        """Kill the supervisor and start it again after ``back_after_s`` (None: never), at another address if
        ``moved``."""
        return self._with(f.KillSupervisor(back_after_s, moved=moved))

    def slow(self, rank: int, *, times: float) -> FaultPlan:
        """Make a step of worker ``rank`` take ``times`` as long."""
        return self._with(f.Slow(rank, times))

    def partition(self, *groups: Collection[int]) -> FaultPlan:
        """Let only members of one group reach each other. The supervisor is on worker 0's side, unless a group has -1."""
        return self._with(f.Partition(tuple(tuple(sorted(group)) for group in groups)))

    def cut(self, one: int, other: int) -> FaultPlan:
        """Lose all messages between these two, in both directions."""
        return self._with(f.Loss(one, other))

    def one_way(self, sender: int, to: int, *, p: float = 1.0) -> FaultPlan:
        """Lose the messages from ``sender`` to ``to`` (with probability ``p``), and none in the other direction."""
        return self._with(f.Loss(sender, to, p, one_way=True))

    def drop(self, one: int | None = None, other: int | None = None, *, p: float) -> FaultPlan:
        """Lose each message between these two (None: any) with probability ``p``."""
        return self._with(f.Loss(one, other, p))

    def throttle(self, one: int, other: int, *, share: float = 0.01) -> FaultPlan:
        """Reduce the bandwidth between these two to ``share``."""
        return self._with(f.Throttle(one, other, share))

    def duplicate(self, one: int | None = None, other: int | None = None, *, p: float, by_s: float = 0.05) -> FaultPlan:
        """Deliver messages between these two (None: any) twice with probability ``p``, up to ``by_s`` apart."""
        return self._with(f.Repeat(one, other, p, by_s))

    def reorder(self, one: int | None = None, other: int | None = None, *, p: float, by_s: float = 0.05) -> FaultPlan:
        """Delay messages between these two (None: any) by up to ``by_s`` with probability ``p``: others overtake them."""
        return self._with(f.Reorder(one, other, p, by_s))

    # ------------------------------------------------------------------------------------------------------- times

    def at(self, time_s: float) -> FaultPlan:
        """Let the last fault happen, or begin, at this time."""
        last = self._last("at")
        if isinstance(last, f.Moment):
            return self._retimed(replace(last, at_s=time_s, at_step=None))
        return self._retimed(replace(last, from_s=time_s))

    def at_step(self, step: int) -> FaultPlan:
        """Let the last fault happen when its worker has made ``step`` steps (for a join or the supervisor: when the first
        worker has)."""
        last = self._last("at_step")
        if not isinstance(last, f.Moment):
            raise Misuse(f"{f.kind_of(last)} at step {step}", "a time for what lasts", "use .between(2, 4) or .at(2)")
        return self._retimed(replace(last, at_s=0.0, at_step=step))

    def between(self, from_s: float, until_s: float) -> FaultPlan:
        """Let the last fault last from one time to the other."""
        last = self._last("between")
        if isinstance(last, f.Moment):
            raise Misuse(f"{f.kind_of(last)} between {from_s} and {until_s}", "one moment", "use .at(2) or .at_step(30)")
        return self._retimed(replace(last, from_s=from_s, until_s=until_s))

    # ------------------------------------------------------------------------------------------------------ the plan

    def describe(self) -> str:
        """Describe each fault in one line."""
        return "\n".join(told(fault) for fault in self.faults) or "nothing goes wrong"

    def check(self, workers: int) -> None:
        """Raise ``Misuse`` if a fault names a worker that does not exist, with ``workers`` at the start."""
        most = workers + sum(f.newcomers(fault) for fault in self.faults)
        for fault in self.faults:
            for rank in f.mentioned(fault):
                if not 0 <= rank < most:
                    raise Misuse(f"{written(fault)[1:]} with {workers} workers", f"a worker from 0 to {most - 1}")

    @classmethod
    def parse(cls, text: str) -> FaultPlan:
        """Return the plan that ``str`` wrote."""
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
        """Draw some faults that a run of ``workers`` for about ``duration_s`` must survive (see ``random_plans``)."""
        from taut.testing.faults.random_plans import random_plan

        return random_plan(seed, workers, duration_s, strategy)

    def __post_init__(self) -> None:
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or self.seed < 0:
            raise Misuse(f"FaultPlan(seed={self.seed!r})", "a whole number from 0 up")
        for fault in self.faults:
            if any(rank < 0 for rank in f.mentioned(fault)):
                raise Misuse(written(fault)[1:], "a worker's rank from 0 up")
            f.check_fault(fault)

    def __str__(self) -> str:
        return f"FaultPlan(seed={self.seed}){''.join(written(fault) for fault in self.faults)}"

    __repr__ = __str__

    def _with(self, fault: f.Fault) -> FaultPlan:
        return replace(self, faults=(*self.faults, fault))

    def _retimed(self, fault: f.Fault) -> FaultPlan:
        return replace(self, faults=(*self.faults[:-1], fault))

    def _last(self, verb: str) -> f.Fault:
        if not self.faults:
            raise Misuse(f"{verb}() of a plan without a fault", "a fault first", "as in FaultPlan().kill(2).at_step(30)")
        return self.faults[-1]
