"""One server's part of the weights: each push is added once; a pull gets a copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from taut.core.staleness_counts import StalenessCounts
from taut.errors import MalformedMessage
from taut.strategies.api import Vector, VectorCoder
from taut.strategies.delivery.copies import SentCopies, Written
from taut.strategies.server.staleness import Lateness, Remedy

Table = dict[int, int]  # by worker: number of its last push in the weights
ENTRY_NBYTES = 16
MOST_ENTRIES = 1 << 16


def bounds(shard: int, shards: int, size: int) -> slice:
    """Return the elements of a shard.

    >>> [bounds(shard, 3, 10) for shard in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]
    """
    return slice(shard * size // shards, (shard + 1) * size // shards)


def holder(shard: int, shards: int, members: Sequence[int]) -> int:
    """Return the holder of a shard: the lowest member with rank ``shard`` modulo ``shards``; if there is none, the lowest
    of all. So at the start the first workers hold one each; when one goes, only its shard moves; and a newcomer, whose
    rank is higher, takes no shard from an entitled worker.

    >>> holder(1, 2, (0, 1, 2, 3)), holder(1, 2, (0, 2, 3)), holder(1, 2, (0, 2))
    (1, 3, 0)
    """
    return min((rank for rank in members if rank % shards == shard), default=members[0])


def packed(w: Vector, table: Table) -> bytes:
    """Return weights, and the pushes in them, as bytes for ``unpacked``.

    >>> unpacked(packed(np.float32([1, 2]), {3: 7}), 8)
    (array([1., 2.], dtype=float32), {3: 7})
    """
    return w.tobytes() + np.array(sorted(table.items()), "<i8").tobytes()


def unpacked(payload: bytes, nbytes: int) -> tuple[Vector, Table]:
    """Return weights of ``nbytes``, and the pushes in them. Raise ``MalformedMessage`` for any other payload."""
    entries, rest = divmod(len(payload) - nbytes, ENTRY_NBYTES)
    if rest or not 0 <= entries <= MOST_ENTRIES:
        raise MalformedMessage(f"{len(payload)} bytes for a shard of {nbytes} and the numbers of its pushes")
    w: Vector = np.frombuffer(payload[:nbytes], np.float32)
    table = np.frombuffer(payload[nbytes:], "<i8").reshape(entries, 2)
    if (table < 0).any():
        raise MalformedMessage("a push, or a worker, with a number below 0")
    return w, {int(rank): int(number) for rank, number in table}


@dataclass
class Shard:
    """The weights of a shard. ``version`` counts pushes, ``own`` those of each worker; ``seen`` is both at each worker's
    last pull, and ``then`` the weights that it got (if the remedy needs them). ``taken``: each worker's last push.

    A shard that its previous holder may still hand over is ``opened`` with the new holder's copy, and counts pushes at
    once (``adopt``). ``silent``: workers that may yet hand it over, which they do before they send anything else.

    >>> shard = Shard(np.float32([3]), Remedy(), opened=np.float32([3]), silent={1, 2})
    >>> shard.push(2, np.float32([1]), 2); shard.adopt(np.float32([7]), None, {1: 5}); shard.w.tolist()
    [8.0]
    """

    w: Vector
    remedy: Remedy
    taken: Table = field(default_factory=dict)
    opened: Vector | None = None
    silent: set[int] = field(default_factory=set)
    version: int = 0
    own: dict[int, int] = field(default_factory=dict)
    seen: dict[int, tuple[int, int]] = field(default_factory=dict)
    then: dict[int, Vector] = field(default_factory=dict)
    staleness: float = 0.0  # of the pushes, smoothed
    late: StalenessCounts = field(default_factory=StalenessCounts)  # all of them
    blank: bool = False  # without weights yet (``shard_copy.py``): no push is counted
    openings: set[int] = field(default_factory=set)  # (rank, count) of each opening whose pushes are in it
    lender: int | None = None  # the worker that was asked for a copy
    without: set[int] = field(default_factory=set)  # workers that have not pulled it either
    spare: tuple[Vector, Table] | None = None  # the copy of the first of those with a lower rank
    sent: SentCopies = field(default_factory=lambda: SentCopies(0))  # what each worker has, where answers are compressed

    def push(
        self, worker: int, change: Vector, workers: int, steps: int = 1, rate: float = 0.0, scale: float = 1.0
    ) -> None:
        """Add a worker's change, corrected for its staleness."""
        version, own = self.seen.get(worker, (0, 0))
        others = (self.version - version) - (self.own.get(worker, 0) - own)
        late = Lateness(others, workers, steps, rate, self.then.get(worker))
        self.w += np.float32(scale) * self.remedy.apply(change, self.w, late)
        self.version += 1
        self.own[worker] = self.own.get(worker, 0) + 1
        self.staleness += 0.05 * (late.staleness - self.staleness)
        self.late.add(late.staleness)

    def pull(self, worker: int) -> bytes:
        """Return the present weights and the pushes in them."""
        self._pulled(worker, self.w)
        return packed(self.w, self.taken)

    def answer(self, worker: int, has: float, coder: VectorCoder) -> Written:
        """Return the same for a worker that has the state ``has``, as the codec writes what has changed since."""
        written = self.sent.write(worker, has, self.w, coder)
        self._pulled(worker, self.sent.copy(worker))
        return written._replace(payload=written.payload + packed(self.w[:0], self.taken))

    def _pulled(self, worker: int, w: Vector) -> None:
        self.seen[worker] = (self.version, self.own.get(worker, 0))
        if self.remedy.compensates:
            self.then[worker] = w.copy()

    def adopt(self, w: Vector, opened: Vector | None, table: Table, openings: frozenset[int] = frozenset()) -> None:
        """Take over the shard from a previous holder: w <- its w + the pushes counted here. If that holder had only
        ``opened`` the shard, with no weights handed over to it, neither has this one now; if this one has them, its
        own are kept and the pushes counted there are added. An opening in ``openings`` that is known already came by
        another holder, which died before it could say so: it is not counted twice."""
        if opened is not None and self.openings.intersection(openings):
            return
        self.openings.update(openings)
        if self.blank:
            self.w, self.opened, self.blank = w.copy(), opened, False
        elif self.opened is not None:
            self.w += w - self.opened
            self.opened = opened
        elif opened is not None:
            self.w += w - opened
        if self.opened is None:
            self.silent = set()
        self._has(table)

    def lent(self, w: Vector, table: Table) -> None:
        """Begin with another worker's copy, until a previous holder hands over the shard, if one does."""
        self.w, self.opened, self.blank = w.copy(), w.copy() if self.silent else None, False
        self.spare = None
        self._has(table)

    def _has(self, table: Table) -> None:
        self.taken = {rank: max(self.taken.get(rank, 0), table.get(rank, 0)) for rank in self.taken.keys() | table.keys()}

    @property
    def complete(self) -> bool:
        """Return whether no holder will hand it over any more, so that a push that is not in it now is in no weights."""
        return self.opened is None and not self.blank

    def spoke(self, *workers: int) -> None:
        """Note that these workers will not hand it over any more."""
        self.silent.difference_update(workers)
        if not self.silent:
            self.opened = None

    def keep(self, members: Iterable[int]) -> None:
        """Forget the workers that are gone, but not the numbers of their pushes: some may be passed on yet."""
        for rank in (set(self.own) | set(self.seen)).difference(members):
            self.own.pop(rank, None), self.seen.pop(rank, None), self.then.pop(rank, None)
            self.sent.forget([rank])
        self.spoke(*self.silent.difference(members))
