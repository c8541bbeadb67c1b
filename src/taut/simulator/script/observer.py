"""Observations of a simulated run, at no cost of virtual time: every step, and now and then the mean model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from taut.simulator.result import HistoryPoint
from taut.simulator.script.connection import VirtualConnector
from taut.simulator.script.fibers import EventLoop
from taut.simulator.script.supervisor import VirtualSupervisor

LOOKS = 64  # at most, spread evenly over the run
SHOWN_EVERY = 64  # steps
SAMPLE = 1 << 18  # elements of a vector from which distances are measured, at most


class Observer:
    """The mean is over the replicas of all workers that are alive and have made a step."""

    def __init__(
        self, loop: EventLoop, supervisor: VirtualSupervisor, progress: Callable[[float, int], None] | None
    ) -> None:
        self.loop, self.supervisor, self.progress = loop, supervisor, progress
        self.steps = 0
        self._points: list[HistoryPoint] = []
        self._looks: list[tuple[float, float | None, float]] = []  # time, score, distance
        self._every = 1
        self._connectors: dict[int, VirtualConnector] = {}
        self._started_s: float | None = None  # kept, since a restarted supervisor has another value

    def stepped(self, connector: VirtualConnector) -> None:
        session = connector.session
        self._connectors[connector.transport.worker] = connector
        self.steps += 1
        made = session.statistics()
        now_s = self._since_start()
        self._points.append(
            HistoryPoint(now_s, session.comm.rank, made.steps, made.samples, made.bytes_sent, made.loss, made.staleness)
        )
        joined = (one for one in self._connectors.values() if one.session is not None)  # without those that are rejoining
        live = [one.session for one in joined if not one.fiber.done]
        if self.steps % (self._every * len(live)) == 0:
            self._look(session, live, now_s)
        if self.progress is not None and self.steps % SHOWN_EVERY == 0:
            self.progress(now_s, self.steps)

    def _since_start(self) -> float:
        if self._started_s is None:
            self._started_s = self.supervisor.cluster.ledger.started_s
        return self.loop.now() - (self._started_s or 0.0)

    def _look(self, here: Any, live: list[Any], now_s: float) -> None:
        """Score the mean of all replicas, and measure their distance from it. ``here``: the worker that has just stepped;
        others may be in the middle of a backward, and their weights must not be touched. Of a model that grows, those
        count that are as far as this one."""
        size, score = here.replica.params.size, None
        live = [session for session in live if session.replica.params.size == size]
        if here.validation.validate is not None:
            score = _score(here, _mean([session.replica.shared() for session in live]))
        self._looks.append((now_s, score, _distance([session.replica.params.vector for session in live])))
        if len(self._looks) > LOOKS:
            self._looks = self._looks[1::2]
            self._every *= 2

    def history(self) -> tuple[HistoryPoint, ...]:
        return tuple(self._points)

    def scores(self) -> tuple[tuple[float, float], ...]:
        return tuple((time_s, score) for time_s, score, _ in self._looks if score is not None)

    def distances(self) -> tuple[tuple[float, float], ...]:
        return tuple((time_s, distance) for time_s, _, distance in self._looks)


def _mean(vectors: Sequence[Any]) -> torch.Tensor:
    """Return the mean in float64, on the device of the vectors."""
    total = torch.zeros(len(vectors[0]), dtype=torch.float64, device=torch.as_tensor(vectors[0]).device)
    for vector in vectors:
        total += torch.as_tensor(vector)
    return total / len(vectors)


def _distance(vectors: Sequence[Any]) -> float:
    """Return the root of the mean squared distance from the mean, as a share of the mean's norm; of large vectors it is
    that of a sample."""
    step = -(-len(vectors[0]) // SAMPLE)
    sampled = torch.stack([torch.as_tensor(vector)[::step].double() for vector in vectors])
    mean = sampled.mean(0)
    return float((sampled - mean).square().sum(1).mean().sqrt()) / (float(mean.norm()) or 1.0)


def _score(session: Any, mean: torch.Tensor) -> float | None:
    own = session.params.tensor.clone()
    session.params.load(mean.float())
    score: float | None = session.validation.score(session.params.model)
    session.params.load(own)
    return score
