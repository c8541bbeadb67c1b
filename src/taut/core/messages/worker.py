"""From a worker to the supervisor."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from taut.core.messages.base import (
    FLOAT32_MAX,
    MAX_WORKERS,
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


class TensorSpec(Struct, frozen=True, array_like=True):
    """A tensor's name, shape, type, part (trained, frozen or buffer) and layout.

    ``layout``: the dimensions in the order of memory, "0,2,3,1" for ``torch.channels_last``; empty if contiguous.
    """

    name: Name
    shape: Annotated[list[Count], Meta(max_length=16)]
    dtype: Word
    part: Word
    layout: Word = ""


class Hello(Message, frozen=True):
    """A process asks to be admitted as a worker. It is answered by ``Welcome`` or ``Refusal``."""

    version: Count
    model: Annotated[list[TensorSpec], Meta(max_length=100_000)]
    address: Name  # where its peers reach it
    public_key: PublicKey
    host: Name
    pid: Count
    was: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1  # its rank before it was given up; -1: it is new


class Ready(Message, frozen=True):
    """The worker has the run's state in ``phase`` and can start. Where the run has gone on meanwhile, it is not heard."""

    phase: Count = 0


class Statistics(Tidy, frozen=True):
    """What one worker did so far. Seconds are since it started training; their split sums to the wall time."""

    steps: Count = 0
    samples: Count = 0
    loss: Real | None = None
    bytes_sent: Count = 0  # payload and header bytes handed to the transport, over all peers
    bytes_dense: Count = 0  # what a ring all-reduce of float32 gradients would have sent in its steps
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
    counted: Annotated[str, Meta(max_length=1024)] = ""  # what the strategy counts, as in "rounds=40 dropped=3"


# What a worker's time goes into. The parts sum to the wall time.
TIME_PARTS = tuple(
    name.removesuffix("_s") for name in Statistics.__struct_fields__ if name.endswith("_s") and name != "wall_s"
)


class Complaint(Tidy, frozen=True):
    """So many messages of worker ``rank`` were refused here, since this worker came; ``excess``: beyond what a worker may
    send in a second, and dropped unread. ``why``: of the last one that was refused."""

    rank: Rank
    refused: Count
    excess: Count = 0
    why: Annotated[str, Meta(max_length=256)] = ""


class Dispute(Struct, frozen=True, array_like=True):
    """Worker ``other`` holds other updates of ``origin`` than this worker does."""

    origin: Rank
    other: Rank


class Heartbeat(Tidy, Message, frozen=True):
    """I am alive; this is what I did. ``sketch`` (may be empty) is a linear sketch of the weights, for the consensus
    distance; ``complaints`` are about the worst of those whose messages make no sense. In lock-step, ``agreed``: the
    stamp of the last membership that all its members have told this worker that they are in; ``elected``: the one that
    the workers decided on without a supervisor, until it is in a roster; ``calm``: this worker hears the supervisor as
    ever, and its vote is not with anybody."""

    statistics: Statistics
    sketch: Annotated[list[Real], Meta(max_length=1024)]
    complaints: Annotated[list[Complaint], Meta(max_length=16)] = field(default_factory=list)
    said: Count = 0  # messages to the supervisor before this one, without heartbeats: fewer came? some were lost
    agreed: Count = 0
    elected: View | None = None
    calm: bool = False
    disputes: Annotated[list[Dispute], Meta(max_length=64)] = field(default_factory=list)


class Done(Message, frozen=True):
    """The worker's loop is over. ``leaving``: it goes now and does not wait for the end of the run. ``begun``: leases
    trained on in part; what else it was dealt and did not report, it never began. ``said``: as in ``Heartbeat``."""

    leaving: bool = False
    begun: Annotated[list[Count], Meta(max_length=65_536)] = field(default_factory=list)
    said: Count = 0


class PhaseDone(Message, frozen=True):
    """The worker has made the steps of all phases before ``phase``; it goes on in the present one until ``NextPhase``."""

    phase: Count


class Failed(Tidy, Message, frozen=True):
    """The worker ends by an error of its own (its script raised, the loss is not finite). ``unfit``: before it had the
    run's state, which it could not take over; nothing of the run was in its hands."""

    reason: Text
    unfit: bool = False


class Digest(Tidy, Message, frozen=True):
    """After the drain: the hash of the weights that this worker ends with, and its last statistics. One payload frame:
    its float32 buffers (batch-norm statistics), to be averaged. ``exact``: hashes must be equal everywhere.

    The rest is about the replica as it was trained, before any averaging: ``score``, what the user's validation says of
    it (None: there is none), ``distance`` from the mean relative to the mean's norm (-1: not measured), or else a
    ``sketch`` to estimate that from, and a ``note`` of what went wrong, for the record."""

    digest: Word
    exact: bool
    have: Annotated[dict[Rank, Count], Meta(max_length=MAX_WORKERS)]
    statistics: Statistics
    score: Real | None = None
    lower_is_better: bool = False
    distance: Annotated[float, Meta(ge=-1.0, le=FLOAT32_MAX)] = -1.0
    sketch: Annotated[list[Real], Meta(max_length=1024)] = field(default_factory=list)
    note: Text = ""


UPLOAD_NBYTES = 1 << 20  # of the final model in one part: small beside any queue, large beside its header


class Upload(Tidy, Message, frozen=True):
    """Part of a final model, a safetensors file; one payload frame. ``score`` (the same in all parts): of this model,
    after averaging and recalibration; ``note``: what went wrong with that, for the record."""

    offset: Count
    total: Count
    score: Real | None = None
    note: Text = ""


class Returned(Message, frozen=True):
    """To a supervisor that came back (its term is higher than the one known), or after a connection broke: this is where
    I stand, whatever was lost on the way. ``state``: joining, ready or done, as the worker sees it; ``holds``: leases
    that it has and has not trained on yet (of one that is done, those in ``Done.begun``); ``done``: leases that it
    trained on of late; ``issued``: leases when the last pulse was sent: what the supervisor sent before is here or lost;
    ``reached``: as in ``PhaseDone``, which may be among what was lost.

    Of a worker that was given up and came back, with the ``rank`` that it had: ``done`` is what it trained on there."""

    rank: Rank
    state: Word
    phase: Count
    holds: Annotated[list[Lease], Meta(max_length=65_536)]
    done: Annotated[list[Lease], Meta(max_length=65_536)]
    issued: Count = 0
    reached: Count = 0


class CheckpointBegun(Message, frozen=True):
    """This worker's part of checkpoint ``number`` is copied. ``holds``: leases that it has, from the first place that is
    not trained on in that copy. Whatever it reports as done after this is not in the checkpoint."""

    number: Count
    holds: Annotated[list[Lease], Meta(max_length=65_536)]
    phase: Count = 0  # of a run that changes its strategy: the one that this worker is in
    steps: Count = 0  # that it has made


class CheckpointDone(Tidy, Message, frozen=True):
    """The worker's part is on disk: so many bytes, with this hash; or it is not, because of ``error``. ``pause_s``: how
    long training stopped for it."""

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
    | LeaseRequest
    | LeaseTaken
    | ReserveSeen
    | LeaseDone
    | PhaseDone
    | Done
    | Failed
    | Digest
    | Upload
    | CheckpointBegun
    | CheckpointDone
)
