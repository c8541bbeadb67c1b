"""The answers of the API, as JSON with fixed fields. Numbers that a worker told and that are not finite become null."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

State = Literal["waiting", "training", "draining", "saving", "finished", "failed", "running", "interrupted"]


class CurvePoint(Struct, frozen=True):
    """A point of the curves: all workers together, over the time since the point before."""

    time_s: float  # since the run began
    samples_per_s: float
    loss: float | None
    workers: int  # that were not gone


class RunLine(Struct, frozen=True, kw_only=True):
    """``GET /api/run``. ``source``: the supervisor itself or the run's store; ``secret_for``: the requests that need the
    dashboard's secret here."""

    run: str
    state: State
    source: Literal["supervisor", "store"]
    secret_for: Literal["changes", "everything"]
    strategy: str
    topology: str
    codec: str
    expected: int = 0  # workers that the run still waits for before it starts
    workers: int  # that are not gone
    ranks: int  # that ever were
    wall_s: float
    train_s: float | None = None  # since training began; null where that is not known
    epoch: int | None = None  # the earliest pass that is not complete, from 0; null where that is not known
    samples_done: int | None = None  # of that pass
    samples_total: int | None = None
    samples: int  # all that were trained on
    samples_per_s: float | None  # since training began
    loss: float | None
    staleness: float | None
    consensus: float | None
    bytes_sent: int
    identical: bool | None  # the replicas, at the end
    exit_code: int | None
    error: str


class WorkerLine(Struct, frozen=True):
    """One worker. ``suspicion``: -log10 of the chance that the worker is only late; null, as is ``refused``, where the
    store does not have it."""

    rank: int
    host: str
    pid: int
    state: str
    reason: str
    steps: int
    samples: int
    samples_per_s: float | None
    loss: float | None
    staleness: float | None
    bytes_sent: int
    refused: int | None  # messages of it that others could not take
    suspicion: float | None


class EventLine(Struct, frozen=True):
    """Something that happened. ``number`` counts from 1."""

    number: int
    time_s: float
    kind: str
    text: str


class Workers(Struct, frozen=True):
    """``GET /api/workers``: at most ``view_model.MOST_WORKERS`` of ``total``, those that are there first."""

    total: int
    workers: tuple[WorkerLine, ...]


class Events(Struct, frozen=True):
    """``GET /api/events?after=N``: the first ones after number N that are still kept, ``last`` is the newest there is."""

    last: int
    events: tuple[EventLine, ...]


class StreamMessage(Struct, frozen=True):
    """One message of ``GET /api/stream``: the run and its workers now, and the events and points that are new since the
    message before. ``fresh``: these points are all there are, and replace what was sent before."""

    run: RunLine
    workers: Workers
    events: Events
    points: tuple[CurvePoint, ...]
    fresh: bool


class DrainRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /api/workers/{rank}/drain``; ``expel``: at once, unsent updates are lost."""

    expel: bool = False


class CommandAnswer(Struct, frozen=True):
    """The answer to ``DrainRequest``: the supervisor's words."""

    said: str


class Problem(Struct, frozen=True):
    """Every answer that is not a success."""

    error: str
    remedy: str = ""
