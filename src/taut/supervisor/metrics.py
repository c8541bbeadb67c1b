"""Figures computed from workers' statistics, for tables, JSON and the dashboard. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress

from taut.core.messages import TIME_PARTS, Statistics
from taut.core.staleness_counts import summed

LEAST_S = 1e-3  # a shorter time is no measurement, and a quotient by it need not be finite


def rate(statistics: Statistics) -> float:
    """Return one worker's samples per second since it started training: always finite.

    >>> rate(Statistics(samples=100, wall_s=2.0)), rate(Statistics(samples=2**62, wall_s=5e-324)) < 1e22
    (50.0, True)
    """
    return statistics.samples / max(LEAST_S, statistics.wall_s) if statistics.wall_s > 0 else 0.0


def finite(value: float | None) -> float | None:
    """Return the figure, or None where it is not finite: JSON has no word for that.

    >>> finite(1.5), finite(float("nan")), finite(float("inf"))
    (1.5, None, None)
    """
    return float(value) if value is not None and math.isfinite(value) else None


def time_split(statistics: Statistics) -> dict[str, float]:
    """Return the seconds that each part of the work took, and the rest as ``other``: they sum to the wall time.

    >>> time_split(Statistics(wall_s=10.0, compute_s=7.5, wait_s=2.0))["other"]
    0.5
    """
    seconds = {part: float(getattr(statistics, f"{part}_s")) for part in TIME_PARTS}
    return seconds | {"other": max(0.0, statistics.wall_s - sum(seconds.values()))}


def total(rows: Iterable[Statistics]) -> Statistics:
    """Return the sums over all workers; loss and staleness as means weighted by steps."""
    workers = list(rows)
    counts = ("steps", "samples", "bytes_sent", "bytes_dense", "updates_sent", "updates_included")
    seconds = ("wall_s", *(f"{part}_s" for part in TIME_PARTS))
    steps = sum(each.steps for each in workers)
    losses = [(each.loss, each.steps) for each in workers if each.loss is not None]
    weight = sum(count for _, count in losses)
    return Statistics(
        loss=sum(loss * count for loss, count in losses) / weight if weight else None,
        staleness=sum(each.staleness * each.steps for each in workers) / steps if steps else 0.0,
        density=sum(each.density * each.steps for each in workers) / steps if steps else 0.0,
        tau=workers[0].tau if workers else 0.0,
        late=summed(each.late for each in workers),
        **{name: sum(getattr(each, name) for each in workers) for name in (*counts, *seconds)},
    )


def counted(statistics: Statistics) -> dict[str, float]:
    """Return what a worker's strategy counted; what is no number is left out.

    >>> counted(Statistics(counted="rounds=3 epsilon=1.5 odd=x"))
    {'rounds': 3.0, 'epsilon': 1.5}
    """
    found = {}
    for name, _, value in (each.partition("=") for each in statistics.counted.split()):
        with suppress(ValueError):
            found[name] = float(value)
    return found


def clients_text(made: Iterable[Statistics]) -> str:
    """Return how many clients were trained in all rounds, by the worker that was there longest; empty without clients.

    >>> clients_text([Statistics(counted="rounds=9 clients_trained=1200 clients_lost=3"), Statistics()])
    '1,200 trained in all rounds together, 3 lost'
    """
    known = [each for each in map(counted, made) if {"clients_trained", "clients_lost"} <= each.keys()]
    if not known:
        return ""
    most = max(known, key=lambda each: each["clients_trained"])
    return f"{most['clients_trained']:,.0f} trained in all rounds together, {most['clients_lost']:,.0f} lost"


def privacy_text(made: Iterable[Statistics]) -> str:
    """Return what the noise in a run's rounds comes to, by the worker that says most; empty where there was none.

    >>> privacy_text([Statistics(counted="noisy_rounds=9 epsilon=2.345 delta=1e-05"), Statistics()])
    'epsilon 2.345 for delta 1e-05, for each client, against who sees the models of 9 rounds'
    """
    known = [each for each in map(counted, made) if {"epsilon", "delta", "noisy_rounds"} <= each.keys()]
    if not known:
        return ""
    most = max(known, key=lambda each: each["epsilon"])
    epsilon = f"epsilon {most['epsilon']:.4g} for delta {most['delta']:g}, for each client"
    return f"{epsilon}, against who sees the models of {most['noisy_rounds']:.0f} rounds"


def masks_text(made: Iterable[Statistics]) -> str:
    """Return what masked sums kept back; empty where no sum was masked.

    >>> masks_text([Statistics(counted="rounds=9 withheld=0 unusable=0"), Statistics()])
    "sums in which no worker saw another one's update"
    >>> masks_text([Statistics(counted="withheld=2 unusable=0"), Statistics(counted="withheld=1 unusable=3")])[50:]
    '2 rounds withheld, for which fewer than three workers had trained; 3 updates too large to be written'
    """
    known = [each for each in map(counted, made) if {"withheld", "unusable"} <= each.keys()]
    if not known:
        return ""
    parts = ["sums in which no worker saw another one's update"]
    if withheld := max(each["withheld"] for each in known):
        parts.append(f"{withheld:.0f} rounds withheld, for which fewer than three workers had trained")
    if unusable := sum(each["unusable"] for each in known):
        parts.append(f"{unusable:.0f} updates too large to be written")
    return "; ".join(parts)


END_TEXTS = (("clients", clients_text), ("privacy", privacy_text), ("masked", masks_text))  # said when a run ends


def compression(statistics: Statistics) -> float | None:
    """Return the ratio of bytes that a ring all-reduce of float32 gradients would have sent to the bytes sent; None
    without peers or before the first byte.

    >>> compression(Statistics(bytes_sent=2, bytes_dense=100)), compression(Statistics(bytes_sent=2))
    (50.0, None)
    """
    comparable = statistics.bytes_sent and statistics.bytes_dense
    return statistics.bytes_dense / statistics.bytes_sent if comparable else None


def cluster_rate(rows: Iterable[Statistics]) -> float:
    """Return the samples per second of all workers: all samples over the longest worker's time."""
    workers = list(rows)
    longest_s = max((each.wall_s for each in workers), default=0.0)
    return sum(each.samples for each in workers) / max(LEAST_S, longest_s) if longest_s > 0 else 0.0
