"""Rejoining: what a worker that was evicted brings along, and how it is merged.

Nothing that it made is forgotten where updates add (``returns = "sum"``): an update has the name (rank, number) for ever,
and nobody takes one twice. So the worker keeps its log of its own updates and of those that were evicted with it. It
takes the state of a donor, with the list of the updates in it, adds those of its log that are not among them, and from
then on passes them on to whoever lacks them, as any survivor does for one who died. What its codec has not sent yet
stays with it: the stray w - b, and the residual. So with b the shared weights,

    b' = b of the donor + updates that the donor lacks          w' = b' + (w - b)

Where replicas are averaged anyway (``"mix"``) it keeps its weights; else (``"take"``) it has the donor's. So it has where
the run is in another phase by then: the one that its work belongs to has ended, with weights that all agreed on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from taut.core.events import Include
from taut.core.messages import TIME_PARTS, Lease, Statistics
from taut.errors import GivenUp, MalformedMessage
from taut.strategies.broadcast.state import BroadcastState
from taut.worker.data.batches import BatchPlan, LeaseSource
from taut.worker.exchange.base import Exchange
from taut.worker.model.replica import Replica
from taut.worker.model.snapshot import Snapshot

if TYPE_CHECKING:
    from taut.worker.data.leases import SupervisorLeases
    from taut.worker.session import WorkerSession

SPENT = ("steps", "samples", "wall_s", *(f"{part}_s" for part in TIME_PARTS))


@dataclass(frozen=True)
class RejoinState:
    """What a worker brings along from ``phase`` of the run. ``exchange``: as it was left; it knows what a relay has not
    passed on. ``stream``: its side of the broadcast; None for methods."""

    returns: str
    replica: Replica
    exchange: Exchange
    stream: BroadcastState | None = None
    phase: int = 0
    without: Collection[int] = ()  # these lied: nothing that the others lack of theirs is brought along

    def merge(self, replica: Replica, state: Snapshot, have: dict[int, int], gone: Iterable[int]) -> list[Include]:
        """Give ``replica`` the donor's ``state``, which contains the updates ``have``, with what is brought along. Return
        the updates that it contains beyond those; ``gone``: whose updates come from no other worker."""
        replica.succeed(self.replica, state, self.returns)
        if self.stream is None or self.returns != "sum":
            return []
        added = self.stream.beyond(have, set(gone) - set(self.without))
        for item in added:
            with suppress(MalformedMessage):  # as at the first time: everybody refuses the same bytes
                replica.absorb(item.payload, item.origin)
        return added


def carried(session: WorkerSession, without: Collection[int] = ()) -> RejoinState:
    """Return what the worker of this session has, when it was evicted, and close its communication thread."""
    phases, comm = session.phases, session.comm
    replica, exchange = session.replica, session.exchange
    phase_protocol = comm.retire()
    if not session.merged:  # nothing of its phase was here yet
        return RejoinState("take", replica, exchange, phase=phases.number)
    ended = phase_protocol.phase != phases.number  # it was about to go to the next phase
    stream = phase_protocol.state if isinstance(phase_protocol.state, BroadcastState) and not ended else None
    return RejoinState(str(phases.choice.kind.returns), replica, exchange, stream, phases.number, without)


def less(made: Statistics, before: Statistics) -> Statistics:
    """Return what was done since ``before``.

    >>> less(Statistics(steps=7, samples=70, loss=0.5), Statistics(steps=3, samples=30)).samples
    40
    """
    rest = {name: max(0, getattr(made, name) - getattr(before, name)) for name in SPENT}
    return msgspec.structs.replace(made, **rest)


def together(one: Statistics, other: Statistics) -> Statistics:
    """Return the sum of what was done under two ranks, one after the other."""
    return Statistics(**{name: getattr(one, name) + getattr(other, name) for name in SPENT})


class SessionLeases(LeaseSource):
    """The leases of a session that may change its rank: those of an earlier rank are no longer this worker's to train on,
    nor to report; the supervisor has dealt them again."""

    def __init__(self, session: WorkerSession) -> None:
        self._session = session
        self._of: dict[int, SupervisorLeases] = {}  # by lease: under which rank it was taken

    def take(self, plan: BatchPlan, ahead: bool = False) -> Lease | Literal["later"] | None:
        while True:
            try:
                self._session.enter()
                lease = self._session.leases.take(plan, ahead)
                break
            except GivenUp as error:
                self._session.come_back(error)
        if isinstance(lease, Lease):
            self._of[lease.lease] = self._session.leases
        return lease

    def holds(self, lease: Lease) -> bool:
        return self._of.get(lease.lease) is self._session.leases

    def done(self, lease: Lease) -> None:
        if self._of.pop(lease.lease, None) is self._session.leases:
            self._session.leases.done(lease)
