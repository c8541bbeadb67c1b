"""Every message that crosses a socket, typed and bounded. Two families: between workers, and with the supervisor.

A message is one header (msgpack of one of these records) and, for some, payload frames that follow it. Decoding is in
``taut.communication.framing``; nothing here is ever unpickled. Bounds are checked while decoding.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

PROTOCOL_VERSION = 1
SUPERVISOR = -1  # the supervisor's place in the space of ranks

Count = Annotated[int, Meta(ge=0, le=2**62)]
Rank = Annotated[int, Meta(ge=0, le=2**31 - 1)]  # given by the supervisor, never used twice in a run
Text = Annotated[str, Meta(max_length=4096)]
Name = Annotated[str, Meta(max_length=512)]
MAX_WORKERS = 65_536
OWN_LEASES = 1 << 61  # numbers of leases that workers take by themselves: from here, with the rank in them
OWN_BITS = 30


class Message(Struct, frozen=True, tag=True, array_like=True):
    """Root of all messages."""


# ---------------------------------------------------------------------------------------------- between workers


class Span(Struct, frozen=True, array_like=True):
    """Updates ``lo..hi`` of ``origin``, merged into one payload. ``lo == hi`` for one update."""

    origin: Rank
    lo: Annotated[int, Meta(ge=1, le=2**62)]
    hi: Annotated[int, Meta(ge=1, le=2**62)]


class Updates(Message, frozen=True):
    """Updates of one origin, in order; one payload frame per span. ``round`` tells retransmissions apart; ``echo`` is how
    many of the receiver's own updates the sender had included when it sent this (so that staleness can be measured)."""

    round: Count
    echo: Count
    spans: Annotated[list[Span], Meta(max_length=1024)]
    phase: Count = 0  # of a run that changes its strategy


class Report(Message, frozen=True):
    """What a worker holds. It acknowledges, asks for what is missing, and tells what is known of the dead; repeating it
    is harmless. ``position``: of the receiver's stream, included up to here (-1: no state yet, hold everything)."""

    round: Count
    position: Annotated[int, Meta(ge=-1, le=2**62)]
    gap: bool  # something before what arrived is missing: send again from `position`
    have: Annotated[dict[Rank, Count], Meta(max_length=MAX_WORKERS)]  # received, per origin
    sealed: Annotated[list[Rank], Meta(max_length=MAX_WORKERS)]  # the dead and gone, from whom nothing more is taken
    final: Annotated[int, Meta(ge=-1, le=2**62)]  # this worker's last update, -1 while it may send more
    clock: Count = 0  # iterations made so far
    phase: Count = 0


class StateRequest(Message, frozen=True):
    """A joiner asks its donor for the bytes ``offset..`` of its state. The first request (offset 0) makes a snapshot."""

    offset: Count


class StateChunk(Message, frozen=True):
    """Part of a replica's state; one payload frame. ``have`` is the version vector of the whole state."""

    offset: Count
    total: Count
    have: Annotated[dict[Rank, Count], Meta(max_length=MAX_WORKERS)]


class Note(Struct, frozen=True, array_like=True):
    """What a payload is, for methods that exchange vectors. What the fields mean is the method's own affair; ``numbers``
    is for the few scalars that go with it."""

    kind: Annotated[str, Meta(max_length=16)]
    round: Count = 0
    part: Count = 0
    numbers: Annotated[list[float], Meta(max_length=64)] = []


class Parcel(Message, frozen=True):
    """The ``seq``-th message of a channel from one worker to another, or one of the ``parts`` it was cut into (each has a
    number of its own); one payload frame. ``received``: how many of the other direction's have come."""

    seq: Annotated[int, Meta(ge=1, le=2**62)]
    received: Count
    note: Note
    part: Annotated[int, Meta(ge=0, le=2**31)]
    parts: Annotated[int, Meta(ge=1, le=2**31)]
    phase: Count = 0


class Receipt(Message, frozen=True):
    """So many parcels of the receiver's have come, in order. ``gap``: a later one came: send again from there."""

    received: Count
    gap: bool = False
    phase: Count = 0


PeerMessage = Updates | Report | StateRequest | StateChunk | Parcel | Receipt

# ------------------------------------------------------------------------------------------ worker to supervisor


class TensorSpec(Struct, frozen=True, array_like=True):
    """A tensor's name, shape, type and part: trained, frozen or buffer."""

    name: Name
    shape: Annotated[list[Count], Meta(max_length=16)]
    dtype: Annotated[str, Meta(max_length=32)]
    part: Annotated[str, Meta(max_length=16)]


class Hello(Message, frozen=True):
    """A process asks to be admitted as a worker. It is answered by ``Welcome`` or ``Refusal``."""

    version: Count
    model: Annotated[list[TensorSpec], Meta(max_length=100_000)]
    address: Name  # where its peers reach it
    public_key: Annotated[str, Meta(max_length=40)]
    host: Name
    pid: Count
    was: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1  # its rank before it was given up; -1: it is new


class Ready(Message, frozen=True):
    """The worker has the run's state and can start."""


class Statistics(Struct, frozen=True, array_like=True):
    """What one worker did so far. Seconds are since it started training; their split sums to the wall time."""

    steps: Count = 0
    samples: Count = 0
    loss: float | None = None
    bytes_sent: Count = 0  # payload and header bytes handed to the transport, over all peers
    bytes_dense: Count = 0  # what dense float32 updates at every step, to the same peers, would have taken
    updates_sent: Count = 0
    updates_included: Count = 0
    staleness: float = 0.0  # own steps between an update's making and its reaching the others, smoothed
    density: float = 0.0  # share of parameters sent per step, smoothed
    tau: float = 0.0
    wall_s: float = 0.0
    compute_s: float = 0.0
    encode_s: float = 0.0
    send_s: float = 0.0
    wait_s: float = 0.0
    merge_s: float = 0.0
    data_s: float = 0.0
    counted: Annotated[str, Meta(max_length=1024)] = ""  # what the strategy counts, as in "rounds=40 dropped=3"


class Complaint(Struct, frozen=True, array_like=True):
    """So many messages of worker ``rank`` were refused here, since this worker came; ``excess``: beyond what a worker may
    send in a second, and dropped unread. ``why``: of the last one that was refused."""

    rank: Rank
    refused: Count
    excess: Count = 0
    why: Annotated[str, Meta(max_length=256)] = ""


class Heartbeat(Message, frozen=True):
    """I am alive; this is what I did. ``sketch`` (may be empty) is a linear sketch of the weights, for the consensus
    distance; ``complaints`` are about the worst of those whose messages make no sense."""

    statistics: Statistics
    sketch: Annotated[list[float], Meta(max_length=1024)]
    complaints: Annotated[list[Complaint], Meta(max_length=16)] = []
    said: Count = 0  # messages to the supervisor before this one, without heartbeats: fewer came? some were lost


class LeaseRequest(Message, frozen=True):
    """Some samples of pass ``epoch`` over a data set of ``length`` samples, please, in multiples of ``batch``; or of a
    later pass before ``until``, where that one is dealt out. Answered by ``Lease``, or by ``NoLease`` for the last."""

    epoch: Count
    length: Annotated[int, Meta(ge=1, le=2**62)]
    batch: Annotated[int, Meta(ge=1, le=2**31)]
    last: bool  # no pass follows: wait for what others still hold rather than leave it undone
    until: Count = 0
    least: Annotated[int, Meta(ge=1, le=2**31)] = 1  # batches, if the pass has enough: so that a lease lasts a while


class Lease(Message, frozen=True):
    """Train on places ``lo..hi-1`` of the order of pass ``epoch`` (see ``taut.core.order``)."""

    lease: Count
    epoch: Count
    lo: Count
    hi: Count


def own_lease(rank: int, number: int) -> int:
    """The number of the ``number``-th lease that worker ``rank`` takes by itself: no two are alike, nor like one that was
    dealt.

    >>> own_lease(3, 5) == own_lease(5, 3), own_lease(2**31 - 1, 2**30 - 1) < 2**62
    (False, True)
    """
    return OWN_LEASES + (rank << OWN_BITS) + number


class LeaseTaken(Message, frozen=True):
    """The worker took this lease by itself from what was set aside for it (``Reserve``). Its number is of the worker's
    own making (see ``own_lease``). ``length``: of the data set."""

    lease: Lease
    length: Count


class ReserveSeen(Message, frozen=True):
    """The worker goes by ``Reserve`` ``version`` from now on. ``said``: as in ``Heartbeat``; neither counts itself."""

    version: Count
    said: Count


class LeaseDone(Message, frozen=True):
    """These leases were trained on."""

    leases: Annotated[list[Count], Meta(max_length=65_536)]


class Done(Message, frozen=True):
    """The worker's loop is over. ``leaving``: it goes now and does not wait for the end of the run."""

    leaving: bool = False


class PhaseDone(Message, frozen=True):
    """The worker has made the steps of all phases before ``phase``; it goes on in the present one until ``NextPhase``."""

    phase: Count


class Failed(Message, frozen=True):
    """The worker ends by an error of its own (its script raised, the loss is not finite)."""

    reason: Text


class Digest(Message, frozen=True):
    """After the drain: the hash of the weights that this worker ends with, and its last statistics. One payload frame:
    its float32 buffers (batch-norm statistics), to be averaged. ``exact``: hashes must be equal everywhere.

    The rest is about the replica as it was trained, before any averaging: ``score``, what the user's validation says of
    it (None: there is none), ``distance`` from the mean relative to the mean's norm (-1: not measured), or else a
    ``sketch`` to estimate that from, and a ``note`` of what went wrong, for the record."""

    digest: Annotated[str, Meta(max_length=128)]
    exact: bool
    have: Annotated[dict[Rank, Count], Meta(max_length=MAX_WORKERS)]
    statistics: Statistics
    score: float | None = None
    lower_is_better: bool = False
    distance: float = -1.0
    sketch: Annotated[list[float], Meta(max_length=1024)] = []
    note: Text = ""


class Upload(Message, frozen=True):
    """Part of a final model, a safetensors file; one payload frame. ``score`` (the same in all parts): of this model,
    after averaging and recalibration; ``note``: what went wrong with that, for the record."""

    offset: Count
    total: Count
    score: float | None = None
    note: Text = ""


class Returned(Message, frozen=True):
    """To a supervisor that came back (its term is higher than the one known), or after a connection broke: this is where
    I stand, whatever was lost on the way. ``state``: joining, ready or done, as the worker sees it; ``holds``: leases
    that it has and has not trained on yet; ``done``: leases that it trained on of late; ``length``: of the data set, 0
    while unknown; ``issued``: leases when the last pulse was sent: what the supervisor sent before is here or lost."""

    rank: Rank
    state: Annotated[str, Meta(max_length=16)]
    phase: Count
    holds: Annotated[list[Lease], Meta(max_length=65_536)]
    done: Annotated[list[Lease], Meta(max_length=65_536)]
    length: Count
    issued: Count = 0


class CheckpointBegun(Message, frozen=True):
    """This worker's part of checkpoint ``number`` is copied. ``holds``: leases that it has, from the first place that is
    not trained on in that copy. Whatever it reports as done after this is not in the checkpoint."""

    number: Count
    holds: Annotated[list[Lease], Meta(max_length=65_536)]
    phase: Count = 0  # of a run that changes its strategy: the one that this worker is in
    steps: Count = 0  # that it has made


class CheckpointDone(Message, frozen=True):
    """The worker's part is on disk: so many bytes, with this hash; or it is not, because of ``error``. ``pause_s``: how
    long training stopped for it."""

    number: Count
    nbytes: Count
    digest: Annotated[str, Meta(max_length=128)]
    error: Text = ""
    pause_s: float = 0.0


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

# ------------------------------------------------------------------------------------------ supervisor to worker


class Member(Struct, frozen=True, array_like=True):
    """A worker as the others know it."""

    rank: Rank
    address: Name
    public_key: Annotated[str, Meta(max_length=40)]
    ready: bool = False  # it has the run's state: rounds may count on it


class Gone(Struct, frozen=True, array_like=True):
    """A worker that died, failed or left, and why."""

    rank: Rank
    reason: Text


class Roster(Message, frozen=True):
    """Who is in the run, as of ``version``. A later version replaces an earlier one whole."""

    version: Count
    members: Annotated[list[Member], Meta(max_length=MAX_WORKERS)]
    gone: Annotated[list[Gone], Meta(max_length=MAX_WORKERS)]


class Welcome(Message, frozen=True):
    """Admitted. ``settings`` are the run's resolved settings as JSON; ``workers`` is how many it starts with."""

    rank: Rank
    run: Name
    seed: Count
    workers: Count
    settings: Text
    term: Count = 0  # of the supervisor's lives


class Refusal(Message, frozen=True):
    """Not admitted, and why, and what to try."""

    reason: Text


class Donor(Message, frozen=True):
    """Take the state from this worker; -1: your own initial state is the run's."""

    rank: Annotated[int, Meta(ge=-1, le=2**31 - 1)]


class Start(Message, frozen=True):
    """Everybody expected is here (or the run is already going): train."""


class NoLease(Message, frozen=True):
    """Pass ``epoch`` is dealt out."""

    epoch: Count


class Reserve(Message, frozen=True):
    """These places (pass, from, to before) are set aside for this worker: it may take leases from them by itself, when
    it has no other, and says so (``LeaseTaken``). A later version replaces an earlier one whole. ``length``: of each
    pass."""

    version: Count
    length: Count
    spans: Annotated[list[tuple[Count, Count, Count]], Meta(max_length=1024)]


class NextPhase(Message, frozen=True):
    """Everybody has made the steps of the phases before ``phase``: end yours, and begin that one."""

    phase: Count


class Drain(Message, frozen=True):
    """Stop training, flush, and drain."""

    reason: Text


class Leave(Message, frozen=True):
    """Go, in order: end the loop, hand over everything, say ``Done(leaving)``. The others go on."""

    reason: Text


class Checkpoint(Message, frozen=True):
    """After your next step, copy your part of checkpoint ``number``, and write it while you train on."""

    number: Annotated[int, Meta(ge=1, le=2**62)]


class Finish(Message, frozen=True):
    """The verdict on the replicas. One payload frame: the averaged buffers, to be adopted (empty: each keeps its own).
    ``writer`` uploads its model.

    All wait for ``Saved`` before they go: should the writer die, another is named by another ``Finish``, and so is each
    worker in turn where all models are kept."""

    identical: bool
    writer: Rank


class Saved(Message, frozen=True):
    """The final model is on disk here (or ``error`` says why not)."""

    path: Text
    error: Text


class Pulse(Message, frozen=True):
    """Answer to a heartbeat: the supervisor is alive. ``term`` counts its lives; ``told`` what it told this worker in the
    present one, without pulses. ``lost``: not all came of what the worker said. Where either count does not fit, a broken
    connection took something with it, and the worker says where it stands (``Returned``). ``issued``: leases, so far."""

    term: Count = 0
    told: Count = 0
    lost: bool = False
    issued: Count = 0


class Moved(Message, frozen=True):
    """The supervisor came back, in its life ``term``, and is found at this address from now on. It comes over the peers'
    socket, from a connection that proved to hold the supervisor's key."""

    address: Name
    term: Count


class Expulsion(Message, frozen=True):
    """You were given up. Stop; or, where ``welcome``, ask for another place: you were silent, and did nothing wrong."""

    reason: Text
    welcome: bool = False


SupervisorMessage = (
    Welcome
    | Refusal
    | Roster
    | Donor
    | Start
    | Lease
    | NoLease
    | Reserve
    | NextPhase
    | Drain
    | Leave
    | Checkpoint
    | Finish
    | Saved
    | Pulse
    | Moved
    | Expulsion
)
