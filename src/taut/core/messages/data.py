"""Messages about leases, between a worker and the supervisor, both ways."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from taut.core.messages.base import Count, Message

OWN_LEASES = 1 << 61  # from here on: numbers of leases that workers take by themselves, with the rank in them
OWN_BITS = 30


class LeaseRequest(Message, frozen=True):
    """Request for samples of pass ``epoch`` over a data set of ``length`` samples, in multiples of ``batch``; or of a
    later pass before ``until``, if that pass is used up. Answered by ``Lease``, or by ``NoLease`` for the last."""

    epoch: Count
    length: Annotated[int, Meta(ge=1, le=2**62)]
    batch: Annotated[int, Meta(ge=1, le=2**31)]
    last: bool  # no pass follows: wait for leases that others may return
    until: Count = 0
    least: Annotated[int, Meta(ge=1, le=2**31)] = 1  # batches, if the pass has enough
    samples: Count = 0  # a digest of the indices, if the data set is a part of another; else 0
    global_batch: Annotated[int, Meta(ge=0, le=2**31)] = 0  # samples of a round, of which ``batch`` is this worker's part


class Lease(Message, frozen=True):
    """Permission to train on indices ``lo..hi-1`` of the order of pass ``epoch`` (see ``taut.core.shuffle``)."""

    lease: Count
    epoch: Count
    lo: Count
    hi: Count


def own_lease(rank: int, number: int) -> int:
    """Return the number of the ``number``-th lease that worker ``rank`` takes by itself, unlike that of any other lease.

    >>> own_lease(3, 5) == own_lease(5, 3), own_lease(2**31 - 1, 2**30 - 1) < 2**62
    (False, True)
    """
    return OWN_LEASES + (rank << OWN_BITS) + number


class LeaseTaken(Message, frozen=True):
    """The worker took this lease by itself from its reserve (``Reserve``), with a number by ``own_lease``.
    ``length``: of the data set."""

    lease: Lease
    length: Count


class ReserveSeen(Message, frozen=True):
    """The worker uses ``Reserve`` ``version`` from now on. ``said``: as in ``Heartbeat``; neither counts itself."""

    version: Count
    said: Count


class LeaseDone(Message, frozen=True):
    """These leases were trained on."""

    leases: Annotated[list[Count], Meta(max_length=65_536)]


class NoLease(Message, frozen=True):
    """All samples of pass ``epoch`` are leased."""

    epoch: Count


class Reserve(Message, frozen=True):
    """These spans (pass, first index, index after the last) are set aside for this worker: when it has no other
    lease, it may take leases from them by itself, and reports them (``LeaseTaken``). A later version replaces an
    earlier one whole. ``length``: of each pass."""

    version: Count
    length: Count
    spans: Annotated[list[tuple[Count, Count, Count]], Meta(max_length=1024)]
