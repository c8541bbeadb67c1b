"""The new values in a run's store, in the form that loggers take. It only reads: the supervisor never waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from taut.analysis.intervals import intervals
from taut.core.messages import TIME_PARTS
from taut.supervisor.storage.store_follower import StoreFollower
from taut.supervisor.storage.store_reader import StatisticRecord, StoredRun, opened

PROGRESS = ("workers", "consensus", "epoch")  # of all workers together


class Scalar(Struct, frozen=True):
    """One value. ``rank``: whose, None for all workers; ``step``: the worker's own steps, or for all the samples trained;
    ``time``: seconds since 1970."""

    name: str
    rank: int | None
    step: int
    time: float
    value: float


class Image(Struct, frozen=True):
    """An image that a script logged, as a PNG file."""

    name: str
    rank: int
    step: int
    time: float
    png: bytes


class News(Struct, frozen=True):
    """The rows of a store that were not read before."""

    run: StoredRun
    scalars: tuple[Scalar, ...]
    images: tuple[Image, ...]


class Logger(Protocol):
    """A tool that keeps metrics. All methods are called from one thread."""

    def begin(self, run: str, run_dir: Path, settings: Mapping[str, Any]) -> str:
        """Start, and return where the metrics can be seen."""
        ...

    def write(self, news: News) -> None: ...

    def end(self, outcome: Mapping[str, Any] | None) -> None:
        """Finish; ``outcome`` is None where the run is not over."""
        ...


class Feed:
    """Reads what is new in the store of the run in ``run_dir``, each value once."""

    def __init__(self, run_dir: Path) -> None:
        self._follower, self._run_dir = StoreFollower(run_dir), run_dir
        self._last: dict[int, StatisticRecord] = {}  # of each worker
        self._rows = {"metric": 0, "image": 0, "progress": 0}

    def read(self) -> News:
        run = self._follower.read()
        scalars = [*self._of_workers(run), *self._of_all(), *self._logged()]
        images = [Image(name, rank, step, time, png) for time, rank, step, name, png in self._new("image")]
        return News(run, tuple(scalars), tuple(images))

    def _of_workers(self, run: StoredRun) -> Iterator[Scalar]:
        steps = {(record.rank, record.time - run.summary.started): record for record in run.statistics}
        for rank, found in intervals([*self._last.values(), *run.statistics], run.summary.started).items():
            for one in found:
                record = steps[rank, one.end_s]
                values = {
                    "loss": one.loss,
                    "samples_per_s": one.samples_per_s,
                    "bytes_per_s": one.bytes_per_s,
                    "staleness": one.staleness,
                    **{f"time/{part}": share for part, share in zip(TIME_PARTS, one.split, strict=True)},
                }
                for name, value in values.items():
                    if value is not None:
                        yield Scalar(name, rank, record.statistics.steps, record.time, float(value))
        self._last |= {record.rank: record for record in run.statistics}

    def _of_all(self) -> Iterator[Scalar]:
        for time, samples, *values in self._new("progress", ("time", "samples_trained", *PROGRESS)):
            for name, value in zip(PROGRESS, values, strict=True):
                if value is not None:
                    yield Scalar(name, None, samples or 0, time, float(value))

    def _logged(self) -> Iterator[Scalar]:
        for time, rank, step, name, value in self._new("metric"):
            if value is not None:
                yield Scalar(name, rank, step, time, value)

    def _new(self, table: str, columns: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
        columns = columns or ("time", "rank", "step", "name", "value" if table == "metric" else "png")
        with opened(self._run_dir) as database:
            query = f"select rowid, {', '.join(columns)} from {table} where rowid > ? order by rowid"
            rows = database.execute(query, (self._rows[table],)).fetchall()
        self._rows[table] = rows[-1][0] if rows else self._rows[table]
        return [row[1:] for row in rows]


def worker_name(rank: int | None) -> str:
    """Return how loggers name the source of a value.

    >>> worker_name(3), worker_name(None)
    ('worker-3', 'all')
    """
    return "all" if rank is None else f"worker-{rank}"
