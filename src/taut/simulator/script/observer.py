"""Observations of a simulated run, at no cost of virtual time: every step, and now and then the mean model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from taut.simulator.result import HistoryPoint
from taut.simulator.script.connection import VirtualConnector
from taut.simulator.script.fibers import EventLoop
from taut.simulator.script.supervisor import VirtualSupervisor

LOOKS = 64  # at most, spread evenly over the run
SHOWN_EVERY = 64  # steps


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
        others may be in the middle of a backward, and their weights must not be touched."""
        vectors = [np.asarray(session.params.host(session.params.vector), np.float64) for session in live]
        mean = np.mean(vectors, axis=0)
        norm = float(np.linalg.norm(mean)) or 1.0
        distance = float(np.sqrt(np.mean([np.sum((vector - mean) ** 2) for vector in vectors]))) / norm
        shared = np.mean(
            [np.asarray(session.params.host(session.replica.shared()), np.float64) for session in live], axis=0
        )
        self._looks.append((now_s, self._score(here, shared), distance))
        if len(self._looks) > LOOKS:
            self._looks = self._looks[1::2]
            self._every *= 2

    def _score(self, session: Any, mean: Any) -> float | None:
        if session.validation.validate is None:
            return None
        own = session.params.host(session.params.vector).copy()
        session.params.load(mean.astype(np.float32))
        score: float | None = session.validation.score(session.params.model)
        session.params.load(own)
        return score

    def history(self) -> tuple[HistoryPoint, ...]:
        return tuple(self._points)

    def scores(self) -> tuple[tuple[float, float], ...]:
        return tuple((time_s, score) for time_s, score, _ in self._looks if score is not None)

    def distances(self) -> tuple[tuple[float, float], ...]:
        return tuple((time_s, distance) for time_s, _, distance in self._looks)
