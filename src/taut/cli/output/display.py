"""The display of a run while it goes and when it ended: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from taut.cli.output.format import compression, duration_text, score_text, time_shares, times
from taut.cli.output.progress_bar import RecentRates, progress_bar, progress_text
from taut.core.early_stopping import BEST_MODEL
from taut.core.messages import TIME_PARTS, Statistics
from taut.quantities import size
from taut.supervisor.metrics import END_TEXTS, cluster_rate, rate, total
from taut.supervisor.view import ClusterView, Outcome, WorkerRow, grouped

ROWS_BESIDE = 6  # of the display, beside the workers' lines: the heading, the bar, figures, and some of what came before
PLAIN_EVERY_S, PLAIN_LATER_EVERY_S = 2.0, 10.0  # without a terminal: often when the training begins, else rarely


def split_text(statistics: Statistics) -> str:
    """Format the time split in a few characters: percent of compute, encode, send, wait, merge and data.

    >>> split_text(Statistics(wall_s=10, compute_s=9, encode_s=0.5))
    '90/5/0/0/0/0'
    """
    shares = time_shares(statistics)
    return "/".join(f"{100 * shares[part]:.0f}" for part in TIME_PARTS)


def worker_table(
    rows: Iterable[WorkerRow], scores: Mapping[int, float | None] | None = None, rates: RecentRates | None = None
) -> Table:
    """Return a table with one line per worker that fits into 80 columns.

    ``rates`` gives the samples per second of the last seconds; without it they are of the worker's whole time.
    ``scores`` adds the validation score of each replica. The reason of a worker that is gone is told below the table.
    """
    table = Table(
        caption_justify="left", caption_style="red", box=None, pad_edge=False, padding=(0, 1), collapse_padding=True
    )
    table.add_column("worker", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for name in ("steps", "samples/s", "loss", "sent", "compute", "talk", "wait", "data"):
        table.add_column(name, justify="right", no_wrap=True)
    if scores is not None:
        table.add_column("score", justify="right", no_wrap=True)
    gone = []
    for row in rows:
        score = [] if scores is None else [score_text(scores.get(row.rank))]
        samples_per_s = rate(row.statistics) if rates is None else rates.of(row.rank)
        shown = "paused" if row.paused and row.state == "training" else row.state
        state = Text(shown, style={"training": "", "gone": "red", "paused": "yellow"}.get(shown, "dim"))
        table.add_row(str(row.rank), state, *_cells(row.statistics, samples_per_s), *score)
        gone += [f"worker {row.rank}: {row.reason}"] if row.state == "gone" and row.reason else []
    table.caption = Text("\n".join(map(_gone_text, grouped(gone)))) if gone else None
    return table


def _gone_text(told: str) -> str:
    """Say that workers are gone.

    >>> _gone_text("worker 3: killed by SIGKILL"), _gone_text("workers 0, 1: silent for 9.0 s")
    ('worker 3 is gone: killed by SIGKILL', 'workers 0, 1 are gone: silent for 9.0 s')
    """
    who, _, reason = told.partition(": ")
    return f"{who} {'are' if who.startswith('workers') else 'is'} gone: {reason}"


def _cells(given: Statistics, samples_per_s: float) -> list[str]:
    shares = time_shares(given)
    exchange = shares["encode"] + shares["send"] + shares["merge"]
    return [
        f"{given.steps:,}",
        f"{samples_per_s:,.0f}",
        "-" if given.loss is None else f"{given.loss:.4f}",
        size(given.bytes_sent),
        *(f"{share:.0%}" for share in (shares["compute"], exchange, shares["wait"], shares["data"])),
    ]


def fitting(rows: Sequence[WorkerRow], room: int) -> list[WorkerRow]:
    """Return ``room`` of the workers at most: where there are more, those that are gone are left out first."""
    if len(rows) <= room:
        return list(rows)
    chosen = sorted(rows, key=lambda row: (row.state == "gone", row.rank))[: max(1, room)]
    return sorted(chosen, key=lambda row: row.rank)


class Display:
    """Shows views on ``console``: a table that is redrawn on a terminal, a line every few seconds elsewhere.

    Messages (``note``) appear above the table, each once. With ``quiet`` nothing else appears.
    """

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console, self.quiet = console, quiet
        self.doing = ""  # what is done before the run starts, shown in place of its progress
        self._live: Live | None = None
        self._rates = RecentRates()
        self._last_event, self._last_line_s = 0, -PLAIN_LATER_EVERY_S

    def __enter__(self) -> Self:
        if self.console.is_terminal and not self.quiet:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, text: str, style: str = "", copied: bool = False) -> None:
        """Print a message above the table. One that is to be ``copied`` into a shell stays one line."""
        self.console.print(Text(text, style=style), soft_wrap=True, no_wrap=copied)

    def output(self, line: str, worker: int | None = None) -> None:
        """Print a line of a script's output, with its colours; the number of its ``worker`` comes before it, if given."""
        text = Text.from_ansi(line)
        self.console.print(text if worker is None else Text(f"[{worker}] ") + text, soft_wrap=True, no_wrap=True)

    def update(self, view: ClusterView) -> None:
        """Show the run as it is now."""
        if self.quiet:
            return
        for event in view.events_since(self._last_event):
            self.note(f"[{event.time_s:6.1f} s] {event.kind}: {event.text}", "dim")
            self._last_event = event.number
        self._rates.update(view)
        if self._live is not None:
            self._live.update(self._drawn(view))
        elif view.wall_s - self._last_line_s >= (PLAIN_EVERY_S if 0 < view.train_s < 20 else PLAIN_LATER_EVERY_S):
            self._last_line_s = view.wall_s
            self.note(self.doing or progress_text(view, self._rates))

    def _drawn(self, view: ClusterView) -> RenderableType:
        shown = fitting(view.workers, self.console.height - ROWS_BESIDE)
        more = len(view.workers) - len(shown)
        parts: list[RenderableType] = [worker_table(shown, rates=self._rates)] if shown else []
        parts += [Text(f"... and {more} more", style="dim")] if more else []
        return Group(
            *parts, Text(self.doing, style="bold") if self.doing else progress_bar(view, self._rates, self.console.width)
        )


def show_outcome(console: Console, run: str, outcome: Outcome) -> None:
    """Print the summary of a run: per worker and in total, the verdict on the replicas, where the model is."""
    rows = [outcome.workers[rank] for rank in sorted(outcome.workers)]
    if rows:
        took = duration_text(outcome.wall_s, outcome.total_s)
        console.print(Text(f"run {run}: {outcome.state}, {took}", style="bold"), soft_wrap=True)
        scores = outcome.validation.replicas if outcome.validation else None
        table = worker_table(rows, scores)
        if len(rows) > 1:
            statistics = [row.statistics for row in rows]
            table.add_section()
            table.add_row("all", "", *_cells(total(statistics), cluster_rate(statistics)))
        console.print(table)
        together = total(row.statistics for row in rows)
        if together.bytes_sent:
            console.print(f"exchange: {exchange_text(together)}", soft_wrap=True)
        console.print(f"replicas: {replicas_text(outcome)}", soft_wrap=True)
    for kind, text in END_TEXTS:
        told = text(row.statistics for row in rows)
        if told:
            console.print(f"{kind}: {told}", soft_wrap=True)
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
        if (best := outcome.model.with_name(BEST_MODEL)).exists():
            console.print(f"model of the best evaluation: {escape(str(best))}", soft_wrap=True)
    for path in outcome.ensemble.values():
        console.print(f"  {escape(str(path))}", soft_wrap=True)


def exchange_text(together: Statistics) -> str:
    """Describe the bytes and the lateness of the exchange in words."""
    words = [f"sent {size(together.bytes_sent)}"]
    factor = compression(together)
    words += [] if factor is None else [f"a dense ring all-reduce would send {times(factor)} as much"]
    words += [f"updates are {together.staleness:.1f} steps late"] if together.staleness else []
    return "; ".join(words)


def replicas_text(outcome: Outcome) -> str:
    """Say whether the replicas are identical."""
    if outcome.identical is None:
        return "not compared"
    distance = f"consensus distance {outcome.consensus:.3g}"
    if outcome.identical:
        before = f"; {distance} before they were averaged" if outcome.consensus else ""
        return f"identical (hash {outcome.digest[:12]}){before}"
    return f"DIFFERENT although promised identical, {distance}" if outcome.exact else f"different, {distance}"


def finish_text(outcome: Outcome) -> str:
    """Describe the chosen model and its score."""
    which = {
        "average": f"the average of {len(outcome.validation.replicas) if outcome.validation else 'all'} replicas",
        "best": f"the best replica, worker {outcome.writer}'s",
        "any": f"worker {outcome.writer}'s replica",
        "ensemble": f"all {len(outcome.ensemble)} replicas",
    }.get(outcome.finish, outcome.finish)
    if outcome.validation is None or outcome.validation.chosen is None:
        return which
    return f"{which}, validation score {score_text(outcome.validation.chosen)}"
