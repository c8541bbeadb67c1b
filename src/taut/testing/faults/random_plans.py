"""Random faults that a run must survive. At least two workers do not die and stay connected to the supervisor, and every
partition heals: a run whose workers all died, or whose halves never meet again, promises nothing.
"""

from __future__ import annotations

from taut.core.messages import SUPERVISOR
from taut.simulator.models.rng import Rng
from taut.testing.fault_plan import FaultPlan

MOST_FAULTS = 4
LONG_S = 40.0  # a silence after which any worker is evicted
AWAY_S = (14.0, 20.0)  # one after which a worker is evicted, and back before a longer run ends
SHORT_S = 4.0  # one after which no worker is evicted
SPARED = 2
KINDS = (
    ("kill", 3),
    ("restart", 2),
    ("pause", 2),
    ("join", 2),
    ("leave", 1),
    ("supervisor", 2),
    ("slow", 1),
    ("partition", 3),
    ("cut", 1),
    ("one_way", 1),
    ("drop", 1),
    ("throttle", 1),
    ("duplicate", 1),
    ("reorder", 1),
)  # kind, and how often


def random_plan(seed: int, workers: int, duration_s: float, strategy: str = "async") -> FaultPlan:
    """Draw one to four faults, most of them within ``duration_s``. The strategy only seeds the draw: every strategy must
    survive every fault. In half of the long runs of ``sync`` the supervisor is away for long, too.

    >>> random_plan(1, workers=4, duration_s=2.0) == random_plan(1, workers=4, duration_s=2.0)
    True
    """
    draw = _Draw(Rng(seed, "plan", strategy), workers, duration_s)
    plan = FaultPlan(seed)
    for _ in range(1 + draw.rng.randrange(MOST_FAULTS)):
        plan = draw.one_more(plan)
    away = Rng(seed, "away")
    if strategy.partition(":")[0] == "sync" and duration_s > AWAY_S[1] and away.random() < 0.5:
        # A majority of the workers goes on without it, if any are lost (strategies/election/election.py).
        plan = plan.kill_supervisor(back_after_s=15.0 + away.randrange(6)).at(2.0 + away.randrange(10))
    return plan


class _Draw:
    """The faults so far, as far as they limit the next ones. ``victims``: the workers that may die, in the order in which
    they do."""

    def __init__(self, rng: Rng, workers: int, duration_s: float) -> None:
        self.rng, self.workers, self.duration_s = rng, workers, duration_s
        everybody = list(range(workers))
        self.spared = {everybody.pop(rng.randrange(len(everybody))) for _ in range(min(SPARED, workers))}
        self.victims = everybody

    def one_more(self, plan: FaultPlan) -> FaultPlan:
        kind = self._kind()
        if kind in ("kill", "restart", "leave"):
            return self._ending(plan, kind)
        if kind in ("slow", "throttle", "drop", "duplicate", "reorder"):
            return self._lasting(plan, kind)
        if kind in ("partition", "cut", "one_way"):
            return self._parting(plan, kind)
        if kind == "join":
            plan = plan.join(1 + self.rng.randrange(2))
        elif kind == "pause":
            rank = self.rng.randrange(self.workers)
            plan = plan.pause(rank, for_s=self._tenths(0.2, SHORT_S) if rank in self.spared else self._while_s())
        else:
            plan = plan.kill_supervisor(back_after_s=self._tenths(0.2, 3.0), moved=self.rng.random() < 0.5)
        return self._timed(plan)

    def _kind(self) -> str:
        drawn = self.rng.randrange(sum(share for _, share in KINDS))
        for kind, share in KINDS:
            if drawn < share:
                return kind
            drawn -= share
        raise AssertionError

    def _ending(self, plan: FaultPlan, kind: str) -> FaultPlan:
        if not self.victims:
            return plan
        rank = self.victims.pop(self.rng.randrange(len(self.victims)))
        if kind == "restart":
            return self._timed(plan.restart(rank, after_s=self._tenths(0.1, 2.0)))
        return self._timed(plan.kill(rank) if kind == "kill" else plan.leave(rank))

    def _lasting(self, plan: FaultPlan, kind: str) -> FaultPlan:
        one, other = self._pair()
        p = self._tenths(0.1, 0.3)
        if kind == "slow":
            plan = plan.slow(one, times=2 + self.rng.randrange(9))
        elif kind == "throttle":
            plan = plan.throttle(one, other, share=0.01)
        elif kind == "drop":
            plan = plan.drop(one, other, p=p)
        elif kind == "duplicate":
            plan = plan.duplicate(p=p) if self.rng.random() < 0.5 else plan.duplicate(one, other, p=p)
        else:
            plan = plan.reorder(p=p) if self.rng.random() < 0.5 else plan.reorder(one, other, p=p)
        return plan if self.rng.random() < 0.3 else self._between(plan, self._tenths(0.2, self.duration_s))

    def _parting(self, plan: FaultPlan, kind: str) -> FaultPlan:
        one, other = self._pair()
        if kind == "partition":
            away = [rank for rank in self.victims if self.rng.random() < 0.6] or self.victims[:1]
            if away:
                rest = [rank for rank in range(self.workers) if rank not in away]
                return self._between(plan.partition(away, [*rest, SUPERVISOR]), self._while_s())
        if self.rng.random() < 0.3:
            other = SUPERVISOR
            if one in self.spared:
                return plan
        plan = plan.cut(one, other) if kind != "one_way" else plan.one_way(one, other)
        return self._between(plan, self._while_s() if other == SUPERVISOR else self._tenths(0.2, 5.0))

    def _pair(self) -> tuple[int, int]:
        one = self.rng.randrange(self.workers)
        return one, (one + 1 + self.rng.randrange(self.workers - 1)) % self.workers

    def _timed(self, plan: FaultPlan) -> FaultPlan:
        if self.rng.random() < 0.4:
            return plan.at_step(1 + self.rng.randrange(16))
        return plan.at(self._tenths(0.0, 1.2 * self.duration_s))

    def _between(self, plan: FaultPlan, for_s: float) -> FaultPlan:
        from_s = self._tenths(0.0, self.duration_s)
        return plan.between(from_s, round(from_s + for_s, 3))

    def _while_s(self) -> float:
        """Draw a duration: mostly short; sometimes so long that a worker is evicted, more often in runs that last until
        it is back."""
        drawn = self.rng.random()
        if drawn < 0.6 and self.duration_s > AWAY_S[1]:
            return self._tenths(*AWAY_S)
        return LONG_S if drawn < 0.2 else self._tenths(0.2, SHORT_S)

    def _tenths(self, low: float, high: float) -> float:
        """Draw a multiple of 0.05, evenly from ``low`` to ``high``: easy to read."""
        return round(round((low + (high - low) * self.rng.random()) / 0.05) * 0.05, 3)
