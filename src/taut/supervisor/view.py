"""A run as displays and callers see it: a snapshot while it goes, and its outcome at the end. Plain values only;
texts of workers (host names, reasons) can be printed safely."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from taut.core.messages import HostUse, Statistics
from taut.core.printable import Printable

RunState = Literal["waiting", "training", "draining", "saving", "finished", "failed"]
WorkerState = Literal["joining", "ready", "training", "done", "drained", "finished", "gone"]


@dataclass(frozen=True, slots=True)
class Event(Printable):
    """An event for the log. ``number`` counts from 1 without gaps, so a display knows what it showed."""

    number: int
    time_s: float  # since the supervisor started
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class WorkerRow(Printable):
    """One worker in the supervisor's table."""

    rank: int
    host: str
    pid: int
    state: WorkerState
    statistics: Statistics
    phi: float  # suspicion: -log10 of the chance that it is only late; 0 if its silence means nothing
    reason: str  # why it is gone, empty while it is not
    refused: int = 0  # messages of it that others refused
    paused: bool = False  # by the run's owner
    host_use: HostUse | None = None  # as it said last
    sent_to: Mapping[int, int] = field(default_factory=dict)  # bytes, by peer


@dataclass(frozen=True, slots=True)
class ValidationScores:
    """Scores of the user's validation function. ``replicas``: of each worker's own, before any averaging (None: its
    function raised); ``chosen``: of the final model, None for an ensemble."""

    replicas: Mapping[int, float | None]
    chosen: float | None
    better: Literal["higher", "lower"] = "higher"


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A run at one moment. Immutable: it may be kept and read from any thread."""

    run: str
    state: RunState
    expected: int  # workers the run still waits for before it starts
    workers: tuple[WorkerRow, ...]
    consensus: float  # distance of the replicas from their mean, relative to the mean's norm, from sketches
    epoch: int  # the earliest pass that is not complete
    samples_done: int  # of that pass
    samples_total: int  # of that pass, 0 while unknown
    events: tuple[Event, ...]  # the latest ones, oldest first
    wall_s: float  # since the supervisor started
    train_s: float  # since the start of training, 0 before it
    wanted: int = 0  # workers that the run was started for
    epochs: int = 0  # passes that the scripts ask for, 0 while unknown
    samples_trained: int = 0  # in all passes
    samples_left: int = 0  # in all passes, where `epochs` is known
    rate: float = 1.0  # by which the owner multiplies all learning rates
    slack: float = 0.0  # of tether, as the owner has set it
    tethered: bool = False  # there is a slack to set
    unit: str = "epoch"  # or "round": of clients; then the samples of passes are rounds

    @property
    def here(self) -> int:
        """Return how many workers take part now."""
        return sum(row.state != "gone" for row in self.workers)

    def events_since(self, number: int) -> tuple[Event, ...]:
        """Return the events after ``number`` (0: all that are kept)."""
        return tuple(event for event in self.events if event.number > number)


@dataclass(frozen=True, slots=True)
class Outcome(Printable):
    """The end of a run. ``exit_code`` is 0 only with a model on disk, no failed script and no broken promise."""

    state: Literal["finished", "failed"]
    exit_code: int
    identical: bool | None  # replicas equal by hash; None when no verdict was reached
    exact: bool  # the codec promises equality; without it `identical` is False and means nothing
    digest: str  # the common hash, empty without one
    model: Path | None  # the safetensors file, or the index of an ensemble
    workers: Mapping[int, WorkerRow] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    samples_again: int = 0  # leased again after a death: perhaps trained twice
    samples_undone: int = 0  # of passes that were begun, never reported as trained
    consensus: float = 0.0  # of the replicas as they were trained, before any averaging; relative
    finish: str = ""  # how the model was chosen
    writer: int | None = None  # whose model it is
    validation: ValidationScores | None = None
    ensemble: Mapping[int, Path] = field(default_factory=dict)  # the models that were kept, where all are
    wall_s: float = 0.0  # from the start of training to the verdict; from the supervisor's start if nothing was trained
    error: str = ""
    total_s: float = 0.0  # from the supervisor's start to the end


_FAILURE = re.compile(r"(worker|process) (\d+): (.*)", re.DOTALL)


def grouped(failures: Iterable[str]) -> list[str]:
    """Return the failures, those with the same reason as one.

    >>> grouped(["worker 3: no data", "worker 1: killed", "worker 0: no data", "process 77: no data"])
    ['workers 0, 3: no data', 'worker 1: killed', 'process 77: no data']
    """
    numbers: dict[tuple[str, str], list[int]] = {}
    for failure in failures:
        known = _FAILURE.fullmatch(failure)
        kind, number, reason = known.groups() if known else ("", "0", failure)
        numbers.setdefault((kind, reason), []).append(int(number))
    return [
        f"{kind}{'s' * (len(each) > 1)} {', '.join(map(str, sorted(each)))}: {reason}" if kind else reason
        for (kind, reason), each in numbers.items()
    ]
