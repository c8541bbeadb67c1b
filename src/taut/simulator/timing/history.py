"""How far a simulated run was at which time: points for its curves, its progress, and the pace of its middle half."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from taut.simulator.result import HistoryPoint
from taut.simulator.timing.worker import Setting, TimedWorker

MOST_POINTS = 4096  # all workers together


class TimingHistory:
    """Counts the steps of ``workers``, who may become more."""

    def __init__(self, setting: Setting, workers: Mapping[int, TimedWorker]) -> None:
        self._setting, self._workers = setting, workers
        self.points: list[HistoryPoint] = []
        self.steps_made = 0
        count = setting.scenario.workers
        planned = setting.steps * count
        self._quarters: dict[int, tuple[int, dict[int, tuple[int, int]]] | None]
        self._quarters = dict.fromkeys((planned // 4, 3 * planned // 4))  # when so many were made, and what was sent
        self._point_every = max(1, setting.steps // max(2, min(64, MOST_POINTS // count)))
        self._told_at = -1

    def stepped(self, worker: TimedWorker, now_ns: int, members: int, figures: Callable[[Any], dict[str, float]]) -> None:
        """Count a step of this worker, of ``members`` that are in the run."""
        self.steps_made += 1
        if self.steps_made in self._quarters:
            taken = {rank: (each.steps, each.account.bytes_sent) for rank, each in self._workers.items()}
            self._quarters[self.steps_made] = (now_ns, taken)
        if worker.steps % self._point_every == 0 or worker.steps == worker.goal:
            samples = worker.steps * self._setting.scenario.batch
            sent = worker.account.bytes_sent
            staleness = figures(worker).get("staleness", 1.0) if worker.account.exchanged else 0.0
            self.points.append(HistoryPoint(now_ns * 1e-9, worker.rank, worker.steps, samples, sent, staleness=staleness))
        if self._setting.progress is not None:
            percent = 100 * self.steps_made // max(1, members * self._setting.steps)
            if percent != self._told_at:
                self._told_at = percent
                self._setting.progress(min(1.0, percent / 100))

    def middle(self) -> dict[str, float]:
        """Return the figures of the middle half of the run, which its start and its end do not disturb: steps per second
        of all workers, and the bytes that the busiest of them sends per step. Empty where the run never came to that."""
        before, after = [*(self._quarters[steps] for steps in sorted(self._quarters)), None][:2]
        if before is None or after is None or after[0] <= before[0]:
            return {}
        made = {rank: (after[1][rank][0] - steps, after[1][rank][1] - sent) for rank, (steps, sent) in before[1].items()}
        return {
            "steps_per_s": sum(steps for steps, _ in made.values()) * 1e9 / (after[0] - before[0]),
            "busiest_nbytes": max(sent / max(1, steps) for steps, sent in made.values()),
        }
