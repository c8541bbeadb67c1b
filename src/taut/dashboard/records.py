"""The answers of the API, as JSON with fixed fields. Numbers that a worker told and that are not finite become null."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from taut.core.messages import TIME_PARTS
from taut.core.staleness_counts import BOUNDS

PARTS = (*TIME_PARTS, "other")  # of a worker's time

State = Literal["waiting", "training", "draining", "saving", "finished", "failed", "running", "interrupted"]


class WorkerPoint(Struct, frozen=True, array_like=True):
    """A point of one worker's curves. ``parts``: the share of each of ``PARTS`` in its time."""

    rank: int
    samples_per_s: float
    loss: float | None
    staleness: float | None
    parts: tuple[float, ...]


class CurvePoint(Struct, frozen=True, kw_only=True):
    """A point of the curves: all workers together, over the time since the point before. ``ideal_per_s``: samples per
    second if the workers did nothing but compute and read data; ``ranks``: the first workers that are there."""

    time_s: float  # since the run began
    samples_per_s: float
    loss: float | None
    workers: int  # that were not gone
    ideal_per_s: float | None = None
    bytes_per_s: float = 0.0
    dense_per_s: float = 0.0  # of a ring all-reduce of float32 gradients
    consensus: float | None = None
    parts: tuple[float, ...] = ()
    ranks: tuple[WorkerPoint, ...] = ()


class Points(Struct, frozen=True):
    """``GET /api/points``: the curves, from the beginning of the run."""

    points: tuple[CurvePoint, ...]


class Spot(Struct, frozen=True, array_like=True):
    """The position of a worker in the picture of the topology: from 0 to 1, from the left and from the top."""

    rank: int
    x: float
    y: float


class TopologyMap(Struct, frozen=True):
    """``GET /api/topology``: the graph of the workers that are there. ``edges``: pairs of ranks; ``traffic``:
    the bytes that each has carried, both ways, as the workers told last (empty: not known); ``note``: why
    there is no picture, empty where there is one."""

    spots: tuple[Spot, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    directed: bool = False
    note: str = ""
    traffic: tuple[int, ...] = ()


class About(Struct, frozen=True):
    """``GET /api/settings``: the run's settings, versions, command and files, as in its store."""

    command: str
    settings: dict[str, str]
    versions: dict[str, str]
    folder: str
    files: tuple[tuple[str, int], ...]  # the models and checkpoints: path within the folder, bytes


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
    rate: float = 1.0  # by which the run's owner multiplies all learning rates
    slack: float = 0.0  # of tether, as the owner has set it; 0: the codec's own
    tethered: bool = False  # there is a slack to set
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
    parts: dict[str, float] = {}  # the seconds of each of ``PARTS``
    paused: bool = False  # by the run's owner


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


class HostLine(Struct, frozen=True):
    """A host and how busy it is, all of its processes together. Shares are from 0 to 1; null where it does not tell."""

    host: str
    ranks: tuple[int, ...]  # of its workers that are there
    processor: float | None
    cores: int
    memory_used: int  # bytes
    memory_total: int
    gpus: int
    gpu: float | None  # the mean of all
    gpu_memory_used: int
    gpu_memory_total: int


class Hosts(Struct, frozen=True):
    """``GET /api/hosts``: those of the workers that are there."""

    hosts: tuple[HostLine, ...]


class RunChoice(Struct, frozen=True):
    """A run in the same folder, to be shown beside this one."""

    run: str
    state: str
    strategy: str
    started: float  # seconds since 1970
    workers: int  # admitted in all


class Runs(Struct, frozen=True):
    """``GET /api/runs``: the newest runs of the folder, the newest first; ``total``: how many there are."""

    total: int
    runs: tuple[RunChoice, ...]


class RunCurve(Struct, frozen=True):
    """``GET /api/runs/RUN``: a run of the folder in few figures, and its curve: for each point the time in seconds, the
    samples trained on so far, the loss and the samples per second. ``score``: of the final model, by the script."""

    run: RunLine
    score: float | None
    points: tuple[tuple[float, float, float | None, float], ...]


class MetricLine(Struct, frozen=True, array_like=True):
    """What one worker's script has logged under a name (``validation``: its scores in the course of the run). A point:
    seconds since the run began, the worker's step, the value."""

    name: str
    rank: int
    points: tuple[tuple[float, int, float], ...]


class ImageLine(Struct, frozen=True, array_like=True):
    """A logged image: ``GET /api/images/ROW`` has it, as a PNG file."""

    row: int
    name: str
    rank: int
    step: int


class Metrics(Struct, frozen=True):
    """``GET /api/metrics``. ``last``: it grows when there is something new."""

    last: int
    lines: tuple[MetricLine, ...]
    images: tuple[ImageLine, ...] = ()


class StalenessLine(Struct, frozen=True, array_like=True):
    """How many updates were how late, by the buckets of ``core/staleness_counts.py``: in the last minute, and in all.
    ``rank``: null for all workers together."""

    rank: int | None
    minute: tuple[int, ...]
    whole: tuple[int, ...]


class StalenessView(Struct, frozen=True):
    """``GET /api/staleness``. ``bounds``: of the buckets, in steps; the last one has none. ``lines``: all workers
    together first; none where workers meet in rounds, and no update is late."""

    bounds: tuple[int, ...] = BOUNDS
    lines: tuple[StalenessLine, ...] = ()


class StreamMessage(Struct, frozen=True):
    """One message of ``GET /api/stream``: the run and its workers now, and the events and points that are new since the
    message before. ``fresh``: these points are all there are, and replace what was sent before."""

    run: RunLine
    workers: Workers
    events: Events
    points: tuple[CurvePoint, ...]
    fresh: bool
    topology: TopologyMap = TopologyMap()
    hosts: tuple[HostLine, ...] = ()
    staleness: StalenessView = StalenessView()


class EmptyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /api/drain``, which ends the run in order, of ``POST /api/checkpoint``, and of
    ``POST /api/workers/{rank}/pause`` and ``resume``: ``{}``."""


class DrainRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /api/workers/{rank}/drain``; ``expel``: at once, unsent updates are lost."""

    expel: bool = False


class TuneRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /api/tune``. ``rate``: what all learning rates are multiplied by; ``slack``: of tether, a power
    of two; null, or left out: as it is."""

    rate: float | None = None
    slack: float | None = None


class CommandAnswer(Struct, frozen=True):
    """The answer to an order: the supervisor's words."""

    said: str


class Problem(Struct, frozen=True):
    """Every answer that is not a success."""

    error: str
    remedy: str = ""
