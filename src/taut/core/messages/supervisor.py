"""Messages from the supervisor to a worker."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from taut.core.messages.base import MAX_WORKERS, Count, Message, Name, PublicKey, Rank, Text, Tidy
from taut.core.messages.data import Lease, NoLease, Reserve
from taut.core.messages.membership import STRIDE, RosterVersion, ViewNumber


class Member(Struct, frozen=True, array_like=True):
    """A worker, for the others."""

    rank: Rank
    address: Name
    public_key: PublicKey
    ready: bool = False  # it has the run's state and takes part in rounds
    first_phase: Count = 0  # it takes no part in earlier phases


class Gone(Tidy, frozen=True):
    """A worker that died, failed or left, with the reason."""

    rank: Rank
    reason: Text


class Roster(Message, frozen=True):
    """The workers in the run, as of ``version``. A later version replaces an earlier one whole. ``view``: the last
    election that the supervisor knows of; members of a later one ignore this roster."""

    version: RosterVersion
    members: Annotated[list[Member], Meta(max_length=MAX_WORKERS)]
    gone: Annotated[list[Gone], Meta(max_length=MAX_WORKERS)]
    view: ViewNumber = 0

    @property
    def stamp(self) -> int:
        """Return the roster's stamp in the order of all memberships (``View.stamp``)."""
        return self.view * STRIDE + self.version


class Welcome(Tidy, Message, frozen=True):
    """Admission. ``settings``: the run's resolved settings as JSON; ``workers``: how many it starts with. ``phase``:
    to begin in; should the run go on to another before this worker is ready, a ``Roster`` names it. ``growths``: how many
    of the phases so far began with a grown model."""

    rank: Rank
    run: Name
    seed: Count
    workers: Count
    settings: Text
    term: Count = 0  # how often the supervisor was restarted
    started: bool = False  # the run has started: this worker joins in mid-run
    phase: Count = 0
    growths: Count = 0


class Refusal(Tidy, Message, frozen=True):
    """No admission, with the reason and what to try."""

    reason: Text


class Donor(Message, frozen=True):
    """The worker to take the state from; -1: the worker's own initial state is the run's."""

    rank: Annotated[int, Meta(ge=-1, le=2**31 - 1)]


class Start(Message, frozen=True):
    """All expected workers are here (or the run has started already): train."""


class NextPhase(Message, frozen=True):
    """All workers have made the steps of the phases before ``phase``: end yours, and begin this one. Wait for roster
    ``version`` first: all must agree on the members that end the phase and that begin the next. ``growths``: how often
    the model has grown; the last time, if that is new, with ``phase``, which keeps the strategy."""

    phase: Count
    version: Count = 0  # of the roster
    growths: Count = 0


class Drain(Tidy, Message, frozen=True):
    """Stop training, flush, and drain. ``averages``: replicas that must be equal have drifted apart by rounding, since
    processors differ: take their mean."""

    reason: Text
    averages: bool = False


class Leave(Tidy, Message, frozen=True):
    """Leave the run in order: end the loop, hand over everything, say ``Done(leaving)``. The others go on."""

    reason: Text


class Steering(Tidy, Message, frozen=True):
    """What the run's owner has changed for this worker since the start. One with a higher ``number`` replaces an earlier
    one whole. ``rate``: factor of all learning rates; ``slack``: of the codec ``tether`` (0: the codec's own);
    ``paused``: make no step for now."""

    number: Count = 0
    rate: Annotated[float, Meta(ge=1e-6, le=1e6)] = 1.0
    slack: Annotated[float, Meta(ge=0.0, le=1e6)] = 0.0
    paused: bool = False


class Checkpoint(Message, frozen=True):
    """After your next step, copy your part of checkpoint ``number``, and write it while you train on."""

    number: Annotated[int, Meta(ge=1, le=2**62)]


class Finish(Message, frozen=True):
    """The verdict on the replicas. One payload frame: the averaged buffers, to be adopted (empty: each keeps its own).
    ``writer`` uploads its model, from byte ``have`` on: so much is here, of an upload that was cut off.

    All wait for ``Saved`` before they go: if the writer dies, another ``Finish`` names another, and if all models are
    kept, it names each worker in turn."""

    identical: bool
    writer: Rank
    have: Count = 0


class UploadSeen(Message, frozen=True):
    """The first ``nbytes`` of the writer's upload are here."""

    nbytes: Count


class Saved(Tidy, Message, frozen=True):
    """The final model is on disk here (or ``error`` says why not)."""

    path: Text
    error: Text


class Pulse(Message, frozen=True):
    """Answer to a heartbeat: the supervisor is alive. ``term``: how often it was restarted; ``told``: messages to this
    worker since then, without pulses; ``lost``: how often messages from the worker were missing. If either count differs
    from the worker's own, a broken connection lost messages, and the worker sends its state (``Returned``). ``issued``:
    leases so far."""

    term: Count = 0
    told: Count = 0
    lost: Count = 0
    issued: Count = 0


class Moved(Message, frozen=True):
    """The supervisor was restarted, as ``term``, at this address. Comes over the peers' socket, from a connection
    that proved to hold the supervisor's key."""

    address: Name
    term: Count


class Expulsion(Tidy, Message, frozen=True):
    """The worker was evicted or expelled. It stops; or, if ``welcome``, it may rejoin: it did nothing wrong.
    ``without``: updates of these workers, which lied, must not be brought along."""

    reason: Text
    welcome: bool = False
    without: Annotated[list[Rank], Meta(max_length=64)] = field(default_factory=list)


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
    | Steering
    | Checkpoint
    | Finish
    | UploadSeen
    | Saved
    | Pulse
    | Moved
    | Expulsion
)
