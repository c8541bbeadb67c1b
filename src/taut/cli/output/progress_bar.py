"""The progress of a run: a bar with the epoch and the time left, and the samples per second of the last few seconds."""

from __future__ import annotations

from collections import deque

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from taut.cli.output.format import compression, times
from taut.quantities import size
from taut.supervisor.metrics import total
from taut.supervisor.view import ClusterView

WINDOW_S = 5.0  # samples per second are of this time
SETTLED_S = 2.0  # after the start: before that, the time left would be a guess from the first steps, which are slow
QUIET_S = 2.0  # a worker that says nothing for longer has stopped training, as far as the rate is concerned


class RecentRates:
    """Samples per second of each worker in the last ``WINDOW_S`` seconds, from the views of a run."""

    def __init__(self) -> None:
        self._seen: dict[int, deque[tuple[float, int, float]]] = {}  # rank -> (its wall time, samples, when seen)
        self._now_s = 0.0

    def update(self, view: ClusterView) -> None:
        """Take in what the workers said until this view."""
        self._now_s = view.wall_s
        for row in view.workers:
            given, points = row.statistics, self._seen.setdefault(row.rank, deque([(0.0, 0, view.wall_s)]))
            if row.state in ("gone", "drained", "finished"):
                points.clear()
            elif not points or given.wall_s != points[-1][0]:
                points.append((given.wall_s, given.samples, view.wall_s))
            while len(points) > 2 and points[1][0] <= given.wall_s - WINDOW_S:
                points.popleft()

    def of(self, rank: int) -> float:
        """Return one worker's rate; 0 before it is known."""
        points = self._seen.get(rank)
        if points is None or len(points) < 2:
            return 0.0
        (began_s, before, _), (ended_s, after, seen_s) = points[0], points[-1]
        span_s = ended_s - began_s + max(0.0, self._now_s - seen_s - QUIET_S)
        return max(0, after - before) / span_s if span_s > 0 else 0.0

    def together(self) -> float:
        """Return the rate of all workers."""
        return sum(self.of(rank) for rank in self._seen)


def time_text(seconds: float) -> str:
    """Return a duration as people say it.

    >>> time_text(8.4), time_text(200), time_text(5000), time_text(200_000)
    ('8 s', '3 min', '1 h 23 min', '2 d 7 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def here_text(view: ClusterView) -> str:
    """Return how many of the workers are here."""
    return f"{view.here} of {max(view.wanted, view.here)} here"


def share_done(view: ClusterView) -> float | None:
    """Return how much of the run is over, from 0 to 1; of the pass, where the number of passes is not known."""
    done, all_of_it = view.samples_done, view.samples_total
    if view.epochs:
        done, all_of_it = view.samples_trained, view.samples_trained + view.samples_left
    return min(1.0, done / all_of_it) if all_of_it else None


def _position(view: ClusterView, rates: RecentRates) -> list[str]:
    share = share_done(view)
    if share is None:
        return []
    number = f"{view.unit} {view.epoch + 1}"
    words = [f"{number} of {view.epochs}" if view.epochs else number, f"{share:.0%}"]
    rate = rates.together() if view.unit == "epoch" else view.samples_trained / max(SETTLED_S, view.train_s)
    if view.epochs and view.state == "training" and view.train_s >= SETTLED_S and rate > 0:
        words.append(f"{time_text(view.samples_left / rate)} left")
    return words


def _figures(view: ClusterView, rates: RecentRates) -> list[str]:
    together = total(row.statistics for row in view.workers)
    if not together.steps:
        return []
    words = [f"{rates.together():,.0f} samples/s"] if view.state == "training" else []
    words += [] if together.loss is None else [f"loss {together.loss:.4f}"]
    factor = compression(together)
    words.append(f"sent {size(together.bytes_sent)}" + ("" if factor is None else f" ({times(factor)} less)"))
    return [*words, f"consensus {view.consensus:.2g}"]


def progress_text(view: ClusterView, rates: RecentRates) -> str:
    """Return a run at a moment, in one line."""
    position = [", ".join(_position(view, rates))]
    words = [f"[{view.wall_s:6.1f} s]", view.state, *position, here_text(view), *_figures(view, rates)]
    return "  ".join(word for word in words if word)


def progress_bar(view: ClusterView, rates: RecentRates, width: int) -> RenderableType:
    """Return a run at a moment for a terminal: a bar as wide as there is room, and a line of the figures that fit."""
    share, position = share_done(view), "  ".join(_position(view, rates))
    line = Table.grid(expand=True, padding=(0, 2))
    line.add_column(no_wrap=True)
    line.add_column(ratio=1)
    line.add_column(no_wrap=True, justify="right")
    bar = ProgressBar(total=None if share is None else 1.0, completed=share or 0.0, pulse=share is None)
    line.add_row(Text(view.state, style="bold"), bar, position or f"{view.wall_s:.0f} s")
    words = [here_text(view), *_figures(view, rates)]
    while len("  ".join(words)) > width:
        words.pop()
    return Group(line, Text("  ".join(words)))
