"""The transport inside one process: for tests, for in-process workers, and for seeded faults.

Without faults a message is in the receiver's hands as soon as it is sent, and any thread may use its own
transport. With a seed, messages stay under way until the test calls ``MemoryNetwork.deliver``; which one
comes next, late, twice or never is then decided by the seed alone, so a failing run can be repeated.

An end of a link is known by a number, from which its address follows. Where there is no supervisor the numbers are the
ranks; else the supervisor gives ranks to those who come, as anywhere.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from taut.core.messages import SUPERVISOR, Member
from taut.errors import Misuse, SupervisorLost
from taut.transport.access import AccessControl
from taut.transport.framing import LIMIT_NBYTES, PEER_QUEUE, nbytes
from taut.transport.keys import RunKeys, Token, WorkerKeys
from taut.transport.transport import ANSWER_S, Announcer, ServerSocket, Transport, TransportFactory

BATCH = 256


class _UnderWay(NamedTuple):
    sender: int  # a number, as ``to`` is
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
    (True, [(0, [b'hello'])])
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        duplicate: float = 0.0,
        drop: float = 0.0,
        delay: int = 0,
        reorder: bool = True,
        capacity: int = PEER_QUEUE,
    ) -> None:
        if seed is None and (duplicate or drop or delay):
            raise Misuse("faults without a seed", "a seed to draw them from", "pass seed=0")
        self._draw = None if seed is None else random.Random(seed)
        self._duplicate, self._drop, self._delay, self._reorder = duplicate, drop, delay, reorder
        self._capacity = capacity
        self._lock = threading.Lock()
        self._transports: dict[int, MemoryTransport] = {}
        self._under_way: list[_UnderWay] = []
        self._count: Counter[tuple[int, int]] = Counter()  # per link: under way or in the inbox
        self._refused: set[tuple[int, int]] = set()  # links whose last send found no room
        self._step = 0

    def transport(self, number: int) -> MemoryTransport:
        """Return the end ``number`` (``SUPERVISOR`` for the supervisor's); a closed one is replaced by a fresh one."""
        with self._lock:
            transport = self._transports.get(number)
            if transport is None:
                transport = self._transports[number] = MemoryTransport(self, number, self._lock)
            return transport

    def supervisor(self, keys: RunKeys | None = None, address: str = "memory://supervisor") -> MemorySupervisor:
        """Return the supervisor's end."""
        return MemorySupervisor(self.transport(SUPERVISOR), keys or RunKeys.generate(), address)

    def member(self, rank: int) -> Member:
        """Return ``rank``, whose number it is, as the others know it."""
        return Member(rank, f"memory://{rank}", "")

    @property
    def pending(self) -> int:
        """Return how many messages are under way and not delivered (always 0 without a seed)."""
        return len(self._under_way)

    def deliver(self, n: int = 1) -> int:
        """Deliver up to ``n`` messages to their inboxes; return how many there were."""
        with self._lock:
            for done in range(n):
                if not self._under_way:
                    return done
                self._put(self._under_way.pop(self._choose()))
            return n

    def _choose(self) -> int:
        """Draw the next message from those that are due, or let the clock jump to the first that is; return its index."""
        assert self._draw is not None
        self._step = max(self._step + 1, min(each.due for each in self._under_way))
        due: list[int] = []
        links: set[tuple[int, int]] = set()
        for i, each in enumerate(self._under_way):
            link = (each.sender, each.to)
            if each.due <= self._step and (self._reorder or link not in links):
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
                self._put(_UnderWay(sender, to, frames, 0))
            else:
                due = self._step + self._draw.randint(0, self._delay)
                self._under_way.append(_UnderWay(sender, to, frames, due))
        return True

    def _put(self, each: _UnderWay) -> None:
        receiver = self._transports.get(each.to)
        if receiver is None or not receiver._takes(each.sender):
            self._took(each.sender, each.to)
        else:
            receiver._inbox.append((each.sender, list(each.frames)))
            receiver._arrived.notify_all()

    def _took(self, sender: int, to: int) -> None:
        """Count a message that has left its link: there is room for a sender that was refused."""
        link = (sender, to)
        self._count[link] -= 1
        if link in self._refused:
            self._refused.discard(link)
            if sender in self._transports:
                self._transports[sender]._rouse()


class MemoryTransport(Transport):
    """A ``Transport`` of a ``MemoryNetwork``. With a seed ``receive`` never waits: it belongs to one thread then."""

    def __init__(self, network: MemoryNetwork, number: int, lock: threading.Lock) -> None:
        self._network, self._number = network, number
        self._ranks = {SUPERVISOR: SUPERVISOR}  # by number, of those who were admitted
        self._numbers = {SUPERVISOR: SUPERVISOR}  # by rank
        self._inbox: deque[tuple[int, list[bytes]]] = deque()
        self._arrived = threading.Condition(lock)
        self._woken = self._closed = False

    @property
    def address(self) -> str:
        return f"memory://{self._number}"

    def admit(self, member: Member) -> None:
        with self._arrived:
            written = member.address.removeprefix("memory://")
            number = int(written) if written.isdecimal() else member.rank
            self._ranks[number], self._numbers[member.rank] = member.rank, number

    def forget(self, rank: int) -> None:
        with self._arrived:
            number = self._numbers.pop(rank, None)
            if number is None:
                return
            del self._ranks[number]
            kept = deque(each for each in self._inbox if each[0] != number)
            for _ in range(len(self._inbox) - len(kept)):
                self._network._took(number, self._number)
            self._inbox = kept

    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        if (size := nbytes(frames)) > LIMIT_NBYTES:
            raise Misuse(f"a message of {size} bytes", f"at most {LIMIT_NBYTES}", "send it in parts")
        with self._arrived:
            number = to if self._number == SUPERVISOR else self._numbers.get(to)
            return not self._closed and number is not None and self._network._send(self._number, number, list(frames))

    def receive(self, timeout_s: float | None) -> list[tuple[int, list[bytes]]]:
        with self._arrived:
            if self._network._draw is None:
                self._arrived.wait_for(lambda: self._inbox or self._woken or self._closed, timeout_s)
            self._woken = False
            taken = [self._inbox.popleft() for _ in range(min(BATCH, len(self._inbox)))]
            for number, _ in taken:
                self._network._took(number, self._number)
            return [(self._ranks.get(number, number), frames) for number, frames in taken]

    def wake(self) -> None:
        with self._arrived:
            self._rouse()

    def close(self, linger_s: float = 0.0) -> None:
        with self._arrived:
            if self._closed:
                return
            self._closed = True
            self._network._transports.pop(self._number, None)
            for number, _ in self._inbox:
                self._network._took(number, self._number)
            self._inbox.clear()
            self._arrived.notify_all()

    def _takes(self, number: int) -> bool:
        return number in self._ranks or self._number == SUPERVISOR

    def _rouse(self) -> None:
        self._woken = True
        self._arrived.notify_all()


class MemorySupervisor(ServerSocket):
    """A ``ServerSocket`` of a ``MemoryNetwork``; a connection's name is its number in the network."""

    def __init__(self, transport: MemoryTransport, keys: RunKeys, address: str) -> None:
        self._transport, self._address = transport, address
        self.access, self.orders = AccessControl(keys), deque()

    @property
    def address(self) -> str:
        return self._address

    def receive(self, timeout_s: float | None) -> list[tuple[bytes, list[bytes]]]:
        return [(b"%d" % number, frames) for number, frames in self._transport.receive(timeout_s)]

    def send(self, connection: bytes, frames: Sequence[bytes]) -> bool:
        return connection.isdigit() and self._transport.send(int(connection), frames)

    def wake(self) -> None:
        self._transport.wake()

    def close(self, linger_s: float = 0.0) -> None:
        self._transport.close()


class Memory(TransportFactory):
    """``--transport memory``: supervisor and workers are threads of one process, for tests. It asks for no token."""

    name: ClassVar[str] = "memory"
    scheme: ClassVar[str] = "memory"
    between_processes: ClassVar[bool] = False
    _networks: ClassVar[dict[str, tuple[MemoryNetwork, Iterator[int]]]] = {}  # by the supervisor's address

    def listen(self, keys: RunKeys, bind: str, port: int, advertise: str | None) -> ServerSocket:
        network, address = MemoryNetwork(), f"memory://run-{len(self._networks)}"
        self._networks[address] = network, itertools.count()
        return network.supervisor(keys, address)

    def connect(self, keys: WorkerKeys, bind: str, advertise: str | None, supervisor: tuple[str, Token]) -> Transport:
        if supervisor[0] not in self._networks:
            raise Misuse(f"supervisor address {supervisor[0]!r}", "a supervisor in this process")
        network, numbers = self._networks[supervisor[0]]
        return network.transport(next(numbers))

    def ask(self, address: str, keys: RunKeys, frames: Sequence[bytes], patience_s: float = ANSWER_S) -> list[bytes]:
        raise SupervisorLost(f"the supervisor at {address} takes no orders: it is in another process, or a test's")

    def announcer(self, keys: RunKeys, members: Sequence[Member]) -> Announcer:
        raise AssertionError("a supervisor in memory cannot move")
