"""From the supervisor to a worker."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from taut.core.messages.base import MAX_WORKERS, Count, Message, Name, PublicKey, Rank, Text, Tidy
from taut.core.messages.data import Lease, NoLease, Reserve
from taut.core.messages.membership import STRIDE, RosterVersion, ViewNumber


class Member(Struct, frozen=True, array_like=True):
    """A worker as the others know it."""

    rank: Rank
    address: Name
    public_key: PublicKey
    ready: bool = False  # it has the run's state: rounds may count on it
    first_phase: Count = 0  # of a run that changes its strategy: where it begins; it has no part in those before


class Gone(Tidy, frozen=True):
    """A worker that died, failed or left, and why."""

    rank: Rank
    reason: Text


class Roster(Message, frozen=True):
    """Who is in the run, as of ``version``. A later version replaces an earlier one whole. ``view``: the last decision of
    the workers' own that its maker knows of; who is part of a later one passes it over."""

    version: RosterVersion
    members: Annotated[list[Member], Meta(max_length=MAX_WORKERS)]
    gone: Annotated[list[Gone], Meta(max_length=MAX_WORKERS)]
    view: ViewNumber = 0

    @property
    def stamp(self) -> int:
        """Its place in the order of all memberships (``View.stamp``)."""
        return self.view * STRIDE + self.version


class Welcome(Tidy, Message, frozen=True):
    """Admitted. ``settings`` are the run's resolved settings as JSON; ``workers`` is how many it starts with. ``phase``:
    to begin in; should the run go on to another before this worker is ready, a ``Roster`` names that."""

    rank: Rank
    run: Name
    seed: Count
    workers: Count
    settings: Text
    term: Count = 0  # of the supervisor's lives
    started: bool = False  # the run has: who comes now comes in mid-run
    phase: Count = 0


class Refusal(Tidy, Message, frozen=True):
    """Not admitted, and why, and what to try."""

    reason: Text


class Donor(Message, frozen=True):
    """Take the state from this worker; -1: your own initial state is the run's."""

    rank: Annotated[int, Meta(ge=-1, le=2**31 - 1)]


class Start(Message, frozen=True):
    """Everybody expected is here (or the run is already going): train."""


class NextPhase(Message, frozen=True):
    """Everybody has made the steps of the phases before ``phase``: end yours, and begin that one. Not before you know who
    is in the run as of ``version``: all must agree on who ends the phase, and who begins in the next."""

    phase: Count
    version: Count = 0  # of the roster


class Drain(Tidy, Message, frozen=True):
    """Stop training, flush, and drain."""

    reason: Text


class Leave(Tidy, Message, frozen=True):
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


class Saved(Tidy, Message, frozen=True):
    """The final model is on disk here (or ``error`` says why not)."""

    path: Text
    error: Text


class Pulse(Message, frozen=True):
    """Answer to a heartbeat: the supervisor is alive. ``term`` counts its lives; ``told`` what it told this worker in the
    present one, without pulses; ``lost`` how often in it not all came of what the worker said. Where either count is not
    the one that the worker has, a broken connection took something with it, perhaps also the pulses that said so, and the
    worker says where it stands (``Returned``). ``issued``: leases, so far."""

    term: Count = 0
    told: Count = 0
    lost: Count = 0
    issued: Count = 0


class Moved(Message, frozen=True):
    """The supervisor came back, in its life ``term``, and is found at this address from now on. It comes over the peers'
    socket, from a connection that proved to hold the supervisor's key."""

    address: Name
    term: Count


class Expulsion(Tidy, Message, frozen=True):
    """You were given up. Stop; or, where ``welcome``, ask for another place: you did nothing wrong. ``without``: of these
    workers, who lied, bring no updates along that the others lack."""

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
    | Checkpoint
    | Finish
    | Saved
    | Pulse
    | Moved
    | Expulsion
)
