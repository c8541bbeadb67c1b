"""What a run shows while it goes and when it ended: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from taut.cli.figures import compression, duration_text, score_text, size, time_split, times
from taut.core.messages import Statistics
from taut.supervisor.figures import PARTS, cluster_rate, rate, total
from taut.supervisor.view import ClusterView, Outcome, WorkerRow, grouped

PLAIN_EVERY_S, PLAIN_LATER_EVERY_S = 2.0, 10.0  # without a terminal: often in the first seconds, then rarely


def split_text(statistics: Statistics) -> str:
    """The time split in a few characters: percent of compute, encode, send, wait, merge and data.

    >>> split_text(Statistics(wall_s=10, compute_s=9, encode_s=0.5))
    '90/5/0/0/0/0'
    """
    shares = time_split(statistics)
    return "/".join(f"{100 * shares[part]:.0f}" for part in PARTS)


def worker_table(rows: Iterable[WorkerRow], title: str = "", scores: Mapping[int, float | None] | None = None) -> Table:
    """One line per worker, with its replica's validation score where there are ``scores``."""
    table = Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 1), collapse_padding=True
    )  # so that it fits into 80 columns
    table.add_column("worker", justify="right", no_wrap=True)
    table.add_column("state", min_width=8)  # where there is no room, "finished" matters more than the last column
    for name in ("steps", "samples/s", "loss", "sent", "vs dense", "stale"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("comp/enc/send\n/wait/merge\n/data %", no_wrap=True)
    if scores is not None:
        table.add_column("score", justify="right", no_wrap=True)
    for row in rows:
        score = [] if scores is None else [score_text(scores.get(row.rank))]
        table.add_row(str(row.rank), state_text(row), *_cells(row.statistics, rate(row.statistics)), *score)
    return table


def state_text(row: WorkerRow) -> Text:
    """The worker's state, with the reason where it is gone."""
    if row.state == "gone":
        return Text(f"gone: {row.reason}" if row.reason else "gone", style="red")
    return Text(row.state, style="" if row.state == "training" else "dim")


def _cells(given: Statistics, samples_per_s: float) -> list[str]:
    return [
        f"{given.steps:,}",
        f"{samples_per_s:,.0f}",
        "-" if given.loss is None else f"{given.loss:.4f}",
        size(given.bytes_sent),
        times(compression(given)),
        f"{given.staleness:.1f}",
        split_text(given),
    ]


def progress_text(view: ClusterView) -> str:
    """A run at a moment, in one line."""
    rows = [row.statistics for row in view.workers]
    together = total(rows)
    words = [f"[{view.wall_s:6.1f} s]", view.state]
    if view.state == "waiting":
        words.append(f"({len(view.workers)} here, {view.expected} expected)")
    if view.samples_total:
        words.append(f"epoch {view.epoch + 1}, {100 * view.samples_done / view.samples_total:.0f}%")
    if together.steps:
        words.append(f"{cluster_rate(rows):,.0f} samples/s")
        words.append("" if together.loss is None else f"loss {together.loss:.4f}")
        words.append(f"sent {size(together.bytes_sent)} ({times(compression(together))})")
        words.append(f"consensus {view.consensus:.2g}")
    return "  ".join(word for word in words if word)


class Display:
    """Shows views on ``console``: a table that is redrawn on a terminal, a line every few seconds elsewhere.

    Messages (``note``) appear above the table, each once. With ``quiet`` only ``note`` is heard.
    """

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.doing = ""  # what is done before the run starts, shown in place of its progress
        self._live: Live | None = None
        self._last_event, self._last_line_s = 0, -PLAIN_EVERY_S

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.quiet:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, text: str, style: str = "") -> None:
        """A message above the table."""
        self.console.print(Text(text, style=style), soft_wrap=True)

    def update(self, view: ClusterView) -> None:
        """Show the run as it is now."""
        if self.quiet:
            return
        for event in view.events_since(self._last_event):
            self.note(f"[{event.time_s:6.1f} s] {event.kind}: {event.text}", "dim")
            self._last_event = event.number
        if self._live is not None:
            self._live.update(Group(worker_table(view.workers), Text(self.doing or progress_text(view), style="bold")))
        elif view.wall_s - self._last_line_s >= (PLAIN_EVERY_S if view.wall_s < 20 else PLAIN_LATER_EVERY_S):
            self._last_line_s = view.wall_s
            self.note(self.doing or progress_text(view))


def show_outcome(console: Console, run: str, outcome: Outcome) -> None:
    """The summary of a run: per worker and in total, the verdict on the replicas, where the model is."""
    rows = [outcome.workers[rank] for rank in sorted(outcome.workers)]
    if rows:
        scores = outcome.validation.replicas if outcome.validation else None
        table = worker_table(
            rows, f"run {run}: {outcome.state}, {duration_text(outcome.wall_s, outcome.total_s)}", scores
        )
        if len(rows) > 1:
            statistics = [row.statistics for row in rows]
            table.add_section()
            table.add_row("all", "", *_cells(total(statistics), cluster_rate(statistics)))
        console.print(table)
    console.print(f"replicas: {replicas_text(outcome)}", soft_wrap=True)
    if outcome.identical is not None:
        console.print(f"finish: {finish_text(outcome)}", soft_wrap=True)
    if outcome.samples_again or outcome.samples_undone:
        console.print(
            f"samples: {outcome.samples_again:,} dealt a second time, {outcome.samples_undone:,} not trained",
            soft_wrap=True,
        )
    for failure in [each for each in grouped(outcome.failures) if each not in outcome.error]:  # that is said below
        console.print(f"[red]failed:[/] {escape(failure)}", soft_wrap=True)
    if outcome.model is not None:
        console.print(f"model: {escape(str(outcome.model))}", soft_wrap=True)
    for path in outcome.ensemble.values():
        console.print(f"  {escape(str(path))}", soft_wrap=True)


def replicas_text(outcome: Outcome) -> str:
    """Identical or not, in words."""
    if outcome.identical is None:
        return "not compared"
    distance = f"consensus distance {outcome.consensus:.3g}"
    if outcome.identical:
        before = f"; {distance} before they were averaged" if outcome.consensus else ""
        return f"identical (hash {outcome.digest[:12]}){before}"
    return f"DIFFERENT although promised identical, {distance}" if outcome.exact else f"different, {distance}"


def finish_text(outcome: Outcome) -> str:
    """Which model came out, and what it is worth."""
    which = {
        "average": f"the average of {len(outcome.validation.replicas) if outcome.validation else 'all'} replicas",
        "best": f"the best replica, worker {outcome.writer}'s",
        "any": f"worker {outcome.writer}'s replica",
        "ensemble": f"all {len(outcome.ensemble)} replicas",
    }.get(outcome.finish, outcome.finish)
    if outcome.validation is None or outcome.validation.chosen is None:
        return which
    return f"{which}, validation score {score_text(outcome.validation.chosen)}"
