"""Messages from a worker to the supervisor."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from taut.core.messages.base import (
    FLOAT32_MAX,
    MAX_WORKERS,
    PRINTABLE,
    Amount,
    Count,
    Message,
    Name,
    PublicKey,
    Rank,
    Real,
    Seconds,
    Text,
    Tidy,
    Word,
)
from taut.core.messages.data import Lease, LeaseDone, LeaseRequest, LeaseTaken, ReserveSeen
from taut.core.messages.membership import View
from taut.core.staleness_counts import BUCKETS


class TensorSpec(Struct, frozen=True, array_like=True):
    """A tensor's name, shape, type, part (trained, frozen or buffer) and layout.

    ``layout``: the dimensions in the order of memory, "0,2,3,1" for ``torch.channels_last``; empty if contiguous.
    """

    name: Name
    shape: Annotated[list[Count], Meta(max_length=16)]
    dtype: Word
    part: Word
    layout: Word = ""


class Platform(Tidy, frozen=True):
    """The software and the processor that a worker computes with. Workers with equal ``rounding`` make equal steps from
    equal gradients, to the last bit. ``script``: the name of its file and a hash of what is in it."""

    taut: Word = ""
    python: Word = ""
    torch: Word = ""
    system: Word = ""
    rounding: Name = ""
    script: Name = ""


class Hello(Message, frozen=True):
    """A process asks to be admitted as a worker. It is answered by ``Welcome`` or ``Refusal``."""

    version: Count
    model: Annotated[list[TensorSpec], Meta(max_length=100_000)]
    address: Name  # where its peers reach it
    public_key: PublicKey
    host: Name
    pid: Count
    was: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1  # its rank before it was evicted; -1: it is new
    platform: Platform = Platform()
    initial: Word = ""  # hash of its initial state; empty: not told


class Ready(Message, frozen=True):
    """The worker has the run's state in ``phase`` and can start. Ignored if the run has gone on to another phase."""

    phase: Count = 0


class Statistics(Tidy, frozen=True):
    """One worker's totals so far. Seconds are since it started training; their split sums to the wall time."""

    steps: Count = 0
    samples: Count = 0
    loss: Real | None = None
    bytes_sent: Count = 0  # payload and header bytes handed to the transport, over all peers
    bytes_dense: Count = 0  # that a ring all-reduce of float32 gradients would have sent
    updates_sent: Count = 0
    updates_included: Count = 0
    staleness: Amount = 0.0  # own steps until an update reaches the others, smoothed; 0: none was sent
    density: Amount = 0.0  # share of parameters sent per step, smoothed
    tau: Real = 0.0
    wall_s: Seconds = 0.0
    compute_s: Seconds = 0.0
    encode_s: Seconds = 0.0
    send_s: Seconds = 0.0
    wait_s: Seconds = 0.0
    merge_s: Seconds = 0.0
    data_s: Seconds = 0.0
    counted: Annotated[str, Meta(max_length=1024)] = ""  # the strategy's figures, as in "rounds=40 dropped=3"
    own_length: Count = 0  # samples of its own data, which is not leased; 0: it has none
    own_passes: Count = 0  # passes over it that are complete
    own_wanted: Count = 0  # passes over it that the script asks for, 0 while unknown
    late: Annotated[tuple[Count, ...], Meta(max_length=BUCKETS)] = ()  # updates by their staleness, in buckets


# What a worker's time goes into. The parts sum to the wall time.
TIME_PARTS = tuple(
    name.removesuffix("_s") for name in Statistics.__struct_fields__ if name.endswith("_s") and name != "wall_s"
)


class HostUse(Tidy, frozen=True):
    """How busy a worker's host is, all of its processes together. Shares are from 0 to 1, and -1 where they are not
    known; ``gpu`` is the mean over all ``gpus``, and their memory is the sum."""

    processor: Annotated[float, Meta(ge=-1.0, le=1.0)] = -1.0
    cores: Count = 0
    memory_used: Count = 0  # bytes
    memory_total: Count = 0
    gpus: Count = 0
    gpu: Annotated[float, Meta(ge=-1.0, le=1.0)] = -1.0
    gpu_memory_used: Count = 0
    gpu_memory_total: Count = 0


class Complaint(Tidy, frozen=True):
    """Number of messages of worker ``rank`` that this worker refused since it came. ``excess``: messages beyond the
    rate limit, dropped unread. ``why``: the last message was refused."""

    rank: Rank
    refused: Count
    excess: Count = 0
    why: Annotated[str, Meta(max_length=256)] = ""


class Dispute(Struct, frozen=True, array_like=True):
    """Worker ``other`` holds other updates of ``origin`` than this worker does."""

    origin: Rank
    other: Rank


MOST_LINKS = 64  # in a message


class Heartbeat(Tidy, Message, frozen=True):
    """The worker is alive, with its statistics. ``sketch``: a linear sketch of the weights, for the consensus distance;
    empty where it is the one that was said last. ``complaints``: about the workers whose messages were refused most. In
    lock-step, ``agreed``: the stamp of the last membership of which all members have told this worker that they are in
    it; ``elected``: the membership that the workers elected without a supervisor, until it is in a roster; ``calm``: this
    worker hears the supervisor, and its vote is with no candidate. ``host_use``, ``sent_to``: now and then, how busy its
    host is, and the bytes sent to those peers that got most."""

    statistics: Statistics
    sketch: Annotated[list[Real], Meta(max_length=1024)]
    complaints: Annotated[list[Complaint], Meta(max_length=16)] = field(default_factory=list)
    said: Count = 0  # messages to the supervisor so far, without heartbeats: shows whether some were lost
    agreed: Count = 0
    elected: View | None = None
    calm: bool = False
    disputes: Annotated[list[Dispute], Meta(max_length=64)] = field(default_factory=list)
    host_use: HostUse | None = None
    sent_to: Annotated[dict[Rank, Count], Meta(max_length=MOST_LINKS)] = field(default_factory=dict)


class MetricPoint(Tidy, frozen=True):
    """A value that the user's script has logged under ``name`` after ``step`` steps. None: it was not finite."""

    step: Count
    name: Annotated[str, Meta(max_length=128, pattern=PRINTABLE)]
    value: Real | None = None


MOST_LOGGED = 1024  # points in a message


class Logged(Message, frozen=True):
    """Values that the user's script has logged since the last such message."""

    points: Annotated[list[MetricPoint], Meta(max_length=MOST_LOGGED)]


IMAGE_NBYTES = 1 << 20


class LoggedImage(Message, frozen=True):
    """An image that the user's script has logged; one payload frame: a PNG file of at most ``IMAGE_NBYTES``."""

    step: Count
    name: Annotated[str, Meta(max_length=128, pattern=PRINTABLE)]


class Validated(Tidy, Message, frozen=True):
    """The score that the script's validation function gave this worker's replica as it was after ``step`` steps, in the
    course of the run. None: it was not finite, or the function raised, as ``note`` says. ``took_s``: the evaluation."""

    step: Count
    score: Real | None = None
    lower_is_better: bool = False
    took_s: Seconds = 0.0
    note: Text = ""


class EndRun(Tidy, Message, frozen=True):
    """The script on this worker asks for the end of the run, for this reason."""

    reason: Text = ""


class Done(Message, frozen=True):
    """The worker's loop is over. ``leaving``: it goes now and does not wait for the end of the run. ``begun``: leases
    that are partly trained on; other unreported leases were never begun. ``said``: as in ``Heartbeat``."""

    leaving: bool = False
    begun: Annotated[list[Count], Meta(max_length=65_536)] = field(default_factory=list)
    said: Count = 0


class PhaseDone(Message, frozen=True):
    """The worker has made the steps of all phases before ``phase``; it continues the present one until ``NextPhase``.
    ``growths``: how often its script has asked for a grown model; if that is more often than the run's model has grown,
    ``model`` is the one that it asks for."""

    phase: Count
    growths: Count = 0
    model: Annotated[list[TensorSpec], Meta(max_length=100_000)] = field(default_factory=list)


class Failed(Tidy, Message, frozen=True):
    """The worker ends by an error of its own (its script raised, the loss is not finite). ``unfit``: it could not
    take the run's state, and has had no part in the run."""

    reason: Text
    unfit: bool = False


class Digest(Tidy, Message, frozen=True):
    """The hash of this worker's final weights, after the drain, and its last statistics. One payload frame: its float32
    buffers (batch-norm statistics), to be averaged. ``exact``: hashes must be equal everywhere.

    The rest is about the trained replica before any averaging: ``score`` of the user's validation (None: there is none),
    ``distance`` from the mean relative to the mean's norm (-1: not measured), or else a ``sketch`` for an estimate, and a
    ``note`` of errors, for the record. ``island``: the number that all processes of its island have in common, by which
    the runs of all parts choose the same island; None: its own rank."""

    digest: Word
    exact: bool
    have: Annotated[dict[Rank, Count], Meta(max_length=MAX_WORKERS)]
    statistics: Statistics
    score: Real | None = None
    lower_is_better: bool = False
    distance: Annotated[float, Meta(ge=-1.0, le=FLOAT32_MAX)] = -1.0
    sketch: Annotated[list[Real], Meta(max_length=1024)] = field(default_factory=list)
    note: Text = ""
    island: Rank | None = None


UPLOAD_NBYTES = 1 << 20  # of the final model in one part: small beside any queue, large beside its header


class Upload(Tidy, Message, frozen=True):
    """Part of a final model, a safetensors file; one payload frame. ``score`` (the same in all parts): of this model,
    after averaging and recalibration; ``note``: errors in that, for the record."""

    offset: Count
    total: Count
    score: Real | None = None
    note: Text = ""


class HandedOver(Tidy, Message, frozen=True):
    """The final model is in the supervisor's folder for it (``taut.core.handover``), with so many bytes and this CRC-32.
    ``score`` and ``note`` as in ``Upload``."""

    total: Count
    checksum: Count
    score: Real | None = None
    note: Text = ""


class Returned(Message, frozen=True):
    """The worker's state, for a supervisor that was restarted (its term is higher than the known one), or after a broken
    connection, which may have lost messages. ``state``: joining, ready or done; ``holds``: leases that it has and has not
    trained on (if done, those in ``Done.begun``); ``done``: leases that it recently trained on; ``issued``: from the last
    pulse: leases that were sent before are here or lost; ``reached``: as in ``PhaseDone``, which may be lost.

    After a rejoin, with its previous ``rank``: ``done`` are the leases that it trained on under that rank."""

    rank: Rank
    state: Word
    phase: Count
    holds: Annotated[list[Lease], Meta(max_length=65_536)]
    done: Annotated[list[Lease], Meta(max_length=65_536)]
    issued: Count = 0
    reached: Count = 0


class CheckpointBegun(Message, frozen=True):
    """This worker's part of checkpoint ``number`` is copied. ``holds``: its leases, from the first index that is not
    trained on in that copy. Leases reported as done after this are not in the checkpoint. ``island``: the number under
    which all processes of its island file their parts; None: its own rank."""

    number: Count
    holds: Annotated[list[Lease], Meta(max_length=65_536)]
    phase: Count = 0  # that this worker is in
    steps: Count = 0  # that it has made
    island: Rank | None = None


class CheckpointDone(Tidy, Message, frozen=True):
    """The worker's part is on disk, with so many bytes and this hash; or not, because of ``error``. ``pause_s``: time
    that training stopped for it."""

    number: Count
    nbytes: Count
    digest: Word
    error: Text = ""
    pause_s: Seconds = 0.0


WorkerMessage = (
    Hello
    | Returned
    | Ready
    | Heartbeat
    | Logged
    | LoggedImage
    | LeaseRequest
    | LeaseTaken
    | ReserveSeen
    | LeaseDone
    | PhaseDone
    | Done
    | Failed
    | Digest
    | Upload
    | HandedOver
    | CheckpointBegun
    | CheckpointDone
    | Validated
    | EndRun
)
