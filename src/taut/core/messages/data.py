"""Who trains on what: between a worker and the supervisor, both ways."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from taut.core.messages.base import Count, Message

OWN_LEASES = 1 << 61  # numbers of leases that workers take by themselves: from here, with the rank in them
OWN_BITS = 30


class LeaseRequest(Message, frozen=True):
    """Some samples of pass ``epoch`` over a data set of ``length`` samples, please, in multiples of ``batch``; or of a
    later pass before ``until``, where that one is dealt out. Answered by ``Lease``, or by ``NoLease`` for the last."""

    epoch: Count
    length: Annotated[int, Meta(ge=1, le=2**62)]
    batch: Annotated[int, Meta(ge=1, le=2**31)]
    last: bool  # no pass follows: wait for what others still hold rather than leave it undone
    until: Count = 0
    least: Annotated[int, Meta(ge=1, le=2**31)] = 1  # batches, if the pass has enough: so that a lease lasts a while
    samples: Count = 0  # a digest of the indices, where the data set is a part of another; 0: it is not


class Lease(Message, frozen=True):
    """Train on places ``lo..hi-1`` of the order of pass ``epoch`` (see ``taut.core.shuffle``)."""

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
