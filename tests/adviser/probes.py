"""Probes and predictions made up for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taut.adviser.candidates import Candidate
from taut.adviser.prediction import Figures, Prediction
from taut.adviser.record import CodecProbe, LinkProbe, Probe, WorkerProbe
from taut.core.messages import Statistics
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario

CODECS = {
    "tether": CodecProbe(3e-10, 6e-9, 0.4),
    "threshold": CodecProbe(5e-10, 6e-9, 0.4),
    "dense": CodecProbe(1e-9, 5e-10, 32.0),
}


def worker(rank: int, step_s: float = 0.02, spread: float = 0.1) -> WorkerProbe:
    return WorkerProbe(rank, f"host{rank}", step_s, spread, 40, 64, 0.05, CODECS)


def link(one: int, other: int, bytes_per_s: float = 11e6, round_trip_s: float = 5e-4) -> LinkProbe:
    return LinkProbe(one, other, round_trip_s, 1.2 * round_trip_s, bytes_per_s, 1.1 * bytes_per_s)


def probe(
    workers: int = 4,
    parameters: int = 25_500_000,
    bytes_per_s: float = 11e6,
    steps_s: Sequence[float] | None = None,
    local: bool = True,
) -> Probe:
    steps_s = steps_s or [0.3] * workers
    links = [link(one, other, bytes_per_s) for one in range(workers) for other in range(one + 1, workers)]
    listed = [worker(rank, steps_s[rank]) for rank in range(workers)]
    return Probe(1, "0", "2026-01-01T00:00:00+00:00", "train.py", [], local, parameters, listed, links)


def figures(samples_per_s: float, *, wait: float = 0.1, sent: float = 1e6, late: float = 1.0) -> Figures:
    return Figures(samples_per_s, 0.02, sent, wait, 0.02, late)


def predictions(listed: Sequence[Candidate], speed: Callable[[Candidate], float]) -> list[Prediction]:
    alone = max(speed(one) for one in listed)
    return [Prediction(one, figures(speed(one)), speed(one) / alone) for one in listed]


def scripted(run: Scenario, samples_per_s: float, error: str = "") -> Simulated:
    """As if the simulator had found so many samples per second."""
    steps = run.steps or 1
    wall_s = run.workers * steps * run.batch / samples_per_s
    row = Statistics(steps, steps * run.batch, bytes_sent=1000 * steps, wall_s=wall_s, wait_s=wall_s / 4, staleness=2.0)
    return Simulated(run, wall_s, dict.fromkeys(range(run.workers), row), error=error)
