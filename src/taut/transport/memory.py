"""The transport inside one process: for tests, for in-process workers, and for seeded faults.

Without faults a message is in the receiver's hands as soon as it is sent, and any thread may use its own
transport. With a seed, messages stay under way until the test calls ``MemoryNetwork.deliver``; which one
comes next, late, twice or never is then decided by the seed alone, so a failing run can be repeated.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from taut.core.messages import SUPERVISOR, Member
from taut.errors import Misuse
from taut.transport.framing import LIMIT_NBYTES, nbytes
from taut.transport.transport import Envelope

CAPACITY = 64  # messages under way per link, as on the zmq transport
BATCH = 256


class _Parcel(NamedTuple):
    sender: int
    to: int
    frames: list[bytes]
    due: int  # not before this delivery step


class MemoryNetwork:
    """All links of one process.

    ``seed``: deliver step by step, in an order drawn from it; ``duplicate``, ``drop``: shares of messages
    that come twice or never; ``delay``: a message waits for up to so many deliveries of others;
    ``reorder=False`` keeps the order within each link.

    >>> network = MemoryNetwork()
    >>> a, b = network.transport(0), network.transport(1)
    >>> a.admit(network.member(1)); b.admit(network.member(0))
    >>> a.send(1, [b"hello"]), b.receive(0)
    (True, [Envelope(sender=0, frames=[b'hello'])])
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        duplicate: float = 0.0,
        drop: float = 0.0,
        delay: int = 0,
        reorder: bool = True,
        capacity: int = CAPACITY,
    ) -> None:
        if seed is None and (duplicate or drop or delay):
            raise Misuse("faults without a seed", "a seed to draw them from", "pass seed=0")
        self._draw = None if seed is None else random.Random(seed)
        self._duplicate, self._drop, self._delay, self._reorder = duplicate, drop, delay, reorder
        self._capacity = capacity
        self._lock = threading.Lock()
        self._transports: dict[int, MemoryTransport] = {}
        self._under_way: list[_Parcel] = []
        self._count: Counter[tuple[int, int]] = Counter()  # per link: under way or in the inbox
        self._refused: set[tuple[int, int]] = set()  # links whose last send found no room
        self._step = 0

    def transport(self, rank: int) -> MemoryTransport:
        """The end of ``rank`` (``SUPERVISOR`` for the supervisor's); a closed one is replaced by a fresh
        one."""
        with self._lock:
            transport = self._transports.get(rank)
            if transport is None:
                transport = self._transports[rank] = MemoryTransport(self, rank, self._lock)
            return transport

    def supervisor(self) -> MemorySupervisor:
        """The supervisor's end as a ``ServerSocket``."""
        return MemorySupervisor(self.transport(SUPERVISOR))

    def member(self, rank: int) -> Member:
        """``rank`` as the others know it."""
        return Member(rank, f"memory://{rank}", "")

    @property
    def pending(self) -> int:
        """Messages that are under way and not delivered (always 0 without a seed)."""
        return len(self._under_way)

    def deliver(self, n: int = 1) -> int:
        """Deliver up to ``n`` messages to their inboxes; returns how many there were."""
        with self._lock:
            for done in range(n):
                if not self._under_way:
                    return done
                self._put(self._under_way.pop(self._choose()))
            return n

    def _choose(self) -> int:
        """The place of the next parcel: drawn from those that are due, or the clock jumps to the first that
        is."""
        assert self._draw is not None
        self._step = max(self._step + 1, min(parcel.due for parcel in self._under_way))
        due: list[int] = []
        links: set[tuple[int, int]] = set()
        for i, parcel in enumerate(self._under_way):
            link = (parcel.sender, parcel.to)
            if parcel.due <= self._step and (self._reorder or link not in links):
                due.append(i)
            links.add(link)
        if not due:  # the first of each link is not due yet, though one behind it is
            return 0
        return self._draw.choice(due)

    def _send(self, sender: int, to: int, frames: list[bytes]) -> bool:
        receiver = self._transports.get(to)
        if receiver is None or not receiver._takes(sender):
            return False
        link = (sender, to)
        if self._count[link] >= self._capacity:
            self._refused.add(link)
            return False
        copies = 1
        if self._draw is not None:
            copies = 0 if self._draw.random() < self._drop else 1 + (self._draw.random() < self._duplicate)
        for _ in range(copies):
            self._count[link] += 1
            if self._draw is None:
                self._put(_Parcel(sender, to, frames, 0))
            else:
                due = self._step + self._draw.randint(0, self._delay)
                self._under_way.append(_Parcel(sender, to, frames, due))
        return True

    def _put(self, parcel: _Parcel) -> None:
        receiver = self._transports.get(parcel.to)
        if receiver is None or not receiver._takes(parcel.sender):
            self._took(parcel.sender, parcel.to)
        else:
            receiver._inbox.append(Envelope(parcel.sender, list(parcel.frames)))
            receiver._arrived.notify_all()

    def _took(self, sender: int, to: int) -> None:
        """A message has left its link: there is room for a sender that was refused."""
        link = (sender, to)
        self._count[link] -= 1
        if link in self._refused:
            self._refused.discard(link)
            if sender in self._transports:
                self._transports[sender]._rouse()

    def _remove(self, rank: int) -> None:
        self._transports.pop(rank, None)


class MemoryTransport:
    """A ``Transport`` of a ``MemoryNetwork``. With a seed ``receive`` never waits: it belongs to one thread
    then."""

    def __init__(self, network: MemoryNetwork, rank: int, lock: threading.Lock) -> None:
        self._network, self._rank = network, rank
        self._admitted: set[int] = set()
        self._inbox: deque[Envelope] = deque()
        self._arrived = threading.Condition(lock)
        self._woken = self._closed = False

    @property
    def address(self) -> str:
        return f"memory://{self._rank}"

    def admit(self, member: Member) -> None:
        with self._arrived:
            self._admitted.add(member.rank)

    def forget(self, rank: int) -> None:
        with self._arrived:
            self._admitted.discard(rank)
            kept = deque(envelope for envelope in self._inbox if envelope.sender != rank)
            for _ in range(len(self._inbox) - len(kept)):
                self._network._took(rank, self._rank)
            self._inbox = kept

    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        if (size := nbytes(frames)) > LIMIT_NBYTES:
            raise Misuse(f"a message of {size} bytes", f"at most {LIMIT_NBYTES}", "send it in parts")
        with self._arrived:
            if self._closed or not self._takes(to):
                return False
            return self._network._send(self._rank, to, list(frames))

    def receive(self, timeout_s: float | None) -> list[Envelope]:
        with self._arrived:
            if self._network._draw is None:
                self._arrived.wait_for(lambda: self._inbox or self._woken or self._closed, timeout_s)
            self._woken = False
            arrived = [self._inbox.popleft() for _ in range(min(BATCH, len(self._inbox)))]
            for envelope in arrived:
                self._network._took(envelope.sender, self._rank)
            return arrived

    def wake(self) -> None:
        with self._arrived:
            self._rouse()

    def close(self, linger_s: float = 0.0) -> None:
        with self._arrived:
            if self._closed:
                return
            self._closed = True
            self._network._remove(self._rank)
            for envelope in self._inbox:
                self._network._took(envelope.sender, self._rank)
            self._inbox.clear()
            self._arrived.notify_all()

    def _takes(self, rank: int) -> bool:
        return rank in self._admitted or SUPERVISOR in (rank, self._rank)

    def _rouse(self) -> None:
        self._woken = True
        self._arrived.notify_all()


class MemorySupervisor:
    """A ``ServerSocket`` of a ``MemoryNetwork``; a connection's name is its rank in the network."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport
        self.address = transport.address
        self.wake, self.close = transport.wake, transport.close

    def receive(self, timeout_s: float | None) -> list[tuple[bytes, list[bytes]]]:
        return [(b"%d" % envelope.sender, envelope.frames) for envelope in self._transport.receive(timeout_s)]

    def send(self, connection: bytes, frames: Sequence[bytes]) -> bool:
        return connection.isdigit() and self._transport.send(int(connection), frames)
