"""From the records of a supervisor or a store to the API's answers. Pure: records in, records out.

Everything a worker says of itself (host, reasons, losses) is untrusted text and numbers. It is cut to a length here and
stays text: the API sends it as JSON, and the page sets it as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from taut.core.messages import HostUse, Statistics
from taut.core.staleness_counts import Counts
from taut.dashboard.history import ProgressMark
from taut.dashboard.records import EventLine, Events, HostLine, RunLine, State, TopologyMap, WorkerLine, Workers
from taut.dashboard.topology_map import topology_map
from taut.supervisor.metrics import cluster_rate, finite, rate, time_split, total
from taut.supervisor.storage.store_reader import StoredRun
from taut.supervisor.view import ClusterView, Outcome, WorkerRow

MOST_WORKERS, MOST_EVENTS = 500, 200  # in one answer
MOST_CHARACTERS = 1000  # of one text


class Seen(Struct, frozen=True):
    """A run at one moment. ``events``: as many as are kept, the oldest first."""

    run: RunLine
    workers: Workers
    events: tuple[EventLine, ...]
    there: Mapping[int, Statistics] = {}  # of the workers that take part
    late: Mapping[int, Counts] = {}  # how late updates were, of all workers that ever were
    hosts: tuple[HostLine, ...] = ()
    traffic: Mapping[tuple[int, int], int] = {}  # bytes between two workers, both ways

    @property
    def over(self) -> bool:
        return self.run.state in ("finished", "failed")

    @property
    def mark(self) -> ProgressMark:
        run = self.run
        return ProgressMark(run.wall_s, run.samples, run.loss, self.there, run.consensus, self.late)

    @property
    def topology(self) -> TopologyMap:
        drawn = topology_map(self.run.topology, tuple(sorted(self.there)))
        carried = tuple(self.traffic.get((min(edge), max(edge)), 0) for edge in drawn.edges) if self.traffic else ()
        return replace(drawn, traffic=carried)

    def events_after(self, number: int, latest: bool = False) -> Events:
        """Return the first events after ``number``, or the ``latest``, as many as one answer holds."""
        later = [event for event in self.events if event.number > number]
        last = self.events[-1].number if self.events else 0
        return Events(last, tuple(later[-MOST_EVENTS:] if latest else later[:MOST_EVENTS]))


def from_view(view: ClusterView, settings: Mapping[str, object], outcome: Outcome | None, secret_for_all: bool) -> Seen:
    """Describe a run whose supervisor is in this process."""
    line = _run_line(
        view.run,
        view.state,
        settings,
        view.workers,
        wall_s=view.wall_s,
        source="supervisor",
        secret_for="everything" if secret_for_all else "changes",
        **{name: getattr(view, name) for name in ("expected", "train_s", "epoch", "samples_done", "samples_total")},
        **{name: getattr(view, name) for name in ("rate", "slack", "tethered")},
        consensus=finite(view.consensus),
        identical=None if outcome is None else outcome.identical,
        exit_code=None if outcome is None else outcome.exit_code,
        error="" if outcome is None else short(outcome.error),
    )
    shown = [each for each in view.events if each.number > 0]
    events = tuple(EventLine(each.number, each.time_s, short(each.kind), short(each.text)) for each in shown)
    rows = view.workers
    return Seen(line, worker_lines(rows), events, _there(rows), _late(rows), host_lines(rows), _traffic(rows))


def from_store(
    stored: StoredRun,
    latest: Mapping[int, Statistics],
    events: tuple[EventLine, ...],
    last_s: float,
    secret_for_all: bool,
) -> Seen:
    """Describe a run from its store, be it over or not. ``latest``: each worker's last statistics; ``last_s``: when
    something was last written, since the run began."""
    summary, rows, outcome = stored.summary, stored.rows(latest), stored.outcome or {}
    progress = stored.progress
    consensus = outcome.get("consensus")
    line = _run_line(
        summary.name,
        "interrupted" if summary.state == "unreadable" else summary.state,
        stored.settings,
        rows,
        wall_s=last_s if summary.ended is None else max(0.0, summary.ended - summary.started),
        source="store",
        secret_for="everything" if secret_for_all else "changes",
        consensus=finite(consensus) if isinstance(consensus, float) else None,
        rate=1.0 if progress is None else progress.rate or 1.0,
        slack=0.0 if progress is None else progress.slack or 0.0,
        tethered=str(stored.settings.get("codec") or "").startswith("tether"),
        identical=summary.identical,
        exit_code=summary.exit_code,
        error=short(summary.error),
    )
    lines = worker_lines(rows)
    ended = isinstance(outcome.get("workers"), Mapping)  # before that, the store does not know
    untold = tuple(replace(each, suspicion=None, refused=each.refused if ended else None) for each in lines.workers)
    return Seen(line, Workers(lines.total, untold), events, _there(rows), _late(rows), host_lines(rows))


def event_lines(stored: StoredRun) -> list[EventLine]:
    """Return the events of a store, by their row numbers."""
    began = stored.summary.started
    return [
        EventLine(number, event.time - began, short(event.kind), short(event.text))
        for number, event in zip(stored.event_rows, stored.events, strict=True)
    ]


def worker_lines(rows: Iterable[WorkerRow]) -> Workers:
    """Return the workers that are there by rank, then those that are gone, the latest first; as many as an answer has."""
    ordered = sorted(rows, key=lambda row: (row.state == "gone", -row.rank if row.state == "gone" else row.rank))
    return Workers(len(ordered), tuple(_worker(row) for row in ordered[:MOST_WORKERS]))


def _traffic(rows: Iterable[WorkerRow]) -> dict[tuple[int, int], int]:
    carried: dict[tuple[int, int], int] = {}
    for row in rows:
        for peer, nbytes in row.sent_to.items() if row.state != "gone" else ():
            pair = (min(row.rank, peer), max(row.rank, peer))
            carried[pair] = carried.get(pair, 0) + nbytes
    return carried


def host_lines(rows: Iterable[WorkerRow]) -> tuple[HostLine, ...]:
    """Return the hosts of the workers that are there, by name, each as one of its workers described it."""
    found: dict[str, list[WorkerRow]] = {}
    for row in sorted(rows, key=lambda one: one.rank):
        if row.state != "gone":
            found.setdefault(row.host, []).append(row)
    return tuple(_host(host, found[host]) for host in sorted(found)[:MOST_WORKERS])


def _host(host: str, rows: Sequence[WorkerRow]) -> HostLine:
    use = next((row.host_use for row in rows if row.host_use is not None), HostUse())
    same = ("cores", "memory_used", "memory_total", "gpus", "gpu_memory_used", "gpu_memory_total")
    return HostLine(
        host=short(host),
        ranks=tuple(row.rank for row in rows),
        processor=None if use.processor < 0 else finite(use.processor),
        gpu=None if use.gpu < 0 else finite(use.gpu),
        **{name: getattr(use, name) for name in same},
    )


def _there(rows: Iterable[WorkerRow]) -> dict[int, Statistics]:
    return {row.rank: row.statistics for row in rows if row.state != "gone"}


def _late(rows: Iterable[WorkerRow]) -> dict[int, Counts]:
    return {row.rank: row.statistics.late for row in rows if row.statistics.late}


def short(text: str) -> str:
    """Cut a text.

    >>> len(short("x" * 5000))
    1000
    """
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"


def _run_line(
    run: str, state: State, settings: Mapping[str, object], rows: Sequence[WorkerRow], **known: object
) -> RunLine:
    statistics = [row.statistics for row in rows]
    there = [row.statistics for row in rows if row.state != "gone"]
    together = total(statistics)
    return RunLine(
        run=run,
        state=state,
        strategy=short(str(settings.get("strategy") or "")),
        topology=short(str(settings.get("topology") or "")),
        codec=short(str(settings.get("codec") or "")),
        workers=len(there),
        ranks=len(rows),
        samples=together.samples,
        samples_per_s=finite(cluster_rate(statistics)),
        loss=finite(total(there or statistics).loss),
        staleness=finite(together.staleness),
        bytes_sent=together.bytes_sent,
        **known,  # type: ignore[arg-type]  # the fields that the two sources know differently
    )


def _worker(row: WorkerRow) -> WorkerLine:
    given = row.statistics
    return WorkerLine(
        **{name: getattr(row, name) for name in ("rank", "pid", "state", "refused", "paused")},
        **{name: getattr(given, name) for name in ("steps", "samples", "bytes_sent")},
        host=short(row.host),
        reason=short(row.reason),
        samples_per_s=finite(rate(given)),
        loss=finite(given.loss),
        staleness=finite(given.staleness),
        suspicion=finite(row.phi),
        parts={part: round(finite(seconds) or 0.0, 3) for part, seconds in time_split(given).items()},
    )
