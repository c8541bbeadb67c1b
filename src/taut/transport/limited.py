"""A transport whose links are slower than they are: ``--link 100mbit,5ms``, in user space, without root.

Each worker has one up-link and one down-link of ``bits_per_s``, which all its traffic with other workers shares. A
message of n bytes takes n / rate seconds of the sender's up-link and as much of the receiver's down-link, at the same
time where both are free:

    leaves     up    =  max(now, up) + 8 n / rate          then latency_s on the way
    delivered  down  =  max(leaves + latency_s - 8 n / rate, down) + 8 n / rate

The message itself is sent at once, with the time at which it comes, and the receiver keeps it for so long: what a link
carries does not depend on how often either side looks. That time is of the machines' wall clocks, which are one clock
where all workers are on one machine. Traffic with the supervisor is not limited.
"""

from __future__ import annotations

import heapq
import itertools
import struct
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from taut.core.clock import Clock
from taut.core.messages import SUPERVISOR, Member
from taut.quantities import LinkSpeed
from taut.transport.framing import PEER_QUEUE, nbytes
from taut.transport.transport import Transport

LONGEST_S = 600.0  # that a message is kept, whatever its sender says
_TIME = struct.Struct("<d")
Arrival = tuple[int, list[bytes]]  # the sender, and the frames


class WallClock:
    """The time of day, in seconds: all processes of a machine have the same."""

    def now(self) -> float:
        return time.time()


@dataclass
class LinkDirection:
    """One direction of a worker's link; ``free_s``: when it is through with what it was given.

    >>> line = LinkDirection(8e6)                                        # a megabyte per second
    >>> line.take(0.0, 500_000), line.take(0.1, 500_000), line.take(5.0, 1_000_000)
    (0.5, 1.0, 6.0)
    """

    bits_per_s: float
    free_s: float = float("-inf")

    def take(self, now: float, size: int) -> float:
        """Return when ``size`` bytes that are given now are through."""
        self.free_s = max(now, self.free_s) + self.takes_s(size)
        return self.free_s

    def takes_s(self, size: int) -> float:
        """Return how long ``size`` bytes occupy the line."""
        return 8.0 * size / self.bits_per_s


class LimitedTransport(Transport):
    """``transport``, with links to other workers that are not faster than ``speed``. All workers of a run have one, with
    clocks that agree."""

    def __init__(self, transport: Transport, speed: LinkSpeed, clock: Clock | None = None) -> None:
        self._transport, self._latency_s = transport, speed.latency_s
        self.supervisor, self.excess = transport.supervisor, transport.excess
        self._clock = clock or WallClock()
        self._up, self._down = LinkDirection(speed.bits_per_s), LinkDirection(speed.bits_per_s)
        self._leaving: defaultdict[int, deque[float]] = defaultdict(deque)  # peer -> when its messages have left
        self._refused: set[int] = set()  # peers for whom too many messages wait for the up-link
        self._coming: list[tuple[float, int, Arrival]] = []  # a heap: when it comes, a number, what
        self._through: deque[tuple[float, Arrival]] = deque()  # when the down-link is through with it
        self._number = itertools.count()

    @property
    def address(self) -> str:
        return self._transport.address

    def admit(self, member: Member) -> None:
        self._transport.admit(member)

    def forget(self, rank: int) -> None:
        self._leaving.pop(rank, None)
        self._refused.discard(rank)
        self._coming = [each for each in self._coming if each[2][0] != rank]
        heapq.heapify(self._coming)
        self._through = deque(each for each in self._through if each[1][0] != rank)
        self._transport.forget(rank)

    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        if to == SUPERVISOR:
            return self._transport.send(to, frames)
        now, leaving = self._clock.now(), self._leaving[to]
        while leaving and leaving[0] <= now:
            leaving.popleft()
        if len(leaving) >= PEER_QUEUE:
            self._refused.add(to)
            return False
        free_s = self._up.free_s
        leaves_s = self._up.take(now, nbytes(frames))
        if not self._transport.send(to, [_TIME.pack(leaves_s + self._latency_s), *frames]):
            self._up.free_s = free_s
            return False
        leaving.append(leaves_s)
        return True

    def receive(self, timeout_s: float | None) -> list[Arrival]:
        now = self._clock.now()
        arrived = []
        for sender, frames in self._transport.receive(self._patience_s(now, timeout_s)):
            if sender == SUPERVISOR or not frames or len(frames[0]) != _TIME.size:
                arrived.append((sender, frames))  # of another worker: no such transport sent it, and it is refused later
            else:
                self._expect(sender, frames)
        self._refused.clear()  # whoever sends is about to try again
        return arrived + self._delivered(self._clock.now())

    def wake(self) -> None:
        self._transport.wake()

    def close(self, linger_s: float = 0.0) -> None:
        self._transport.close(linger_s)

    def _expect(self, sender: int, frames: list[bytes]) -> None:
        comes_s = min(_TIME.unpack(frames[0])[0], self._clock.now() + LONGEST_S)  # NaN: at once
        heapq.heappush(self._coming, (comes_s, next(self._number), (sender, frames[1:])))

    def _delivered(self, now: float) -> list[Arrival]:
        """Take what has come through the down-link by now, in the order in which it came to it."""
        while self._coming and not self._coming[0][0] > now:
            comes_s, _, arrival = heapq.heappop(self._coming)
            size = nbytes(arrival[1])
            self._through.append((self._down.take(comes_s - self._down.takes_s(size), size), arrival))
        delivered = []
        while self._through and not self._through[0][0] > now:
            delivered.append(self._through.popleft()[1])
        return delivered

    def _patience_s(self, now: float, timeout_s: float | None) -> float | None:
        """Return how long to wait at most: until a message comes or is through, or there is room for a refused one."""
        times = [each[0][0] for each in (self._coming, self._through) if each]
        times += [leaving[0] for to in self._refused if (leaving := self._leaving[to])]
        if not times:
            return timeout_s
        left_s = max(0.0, min(times) - now)
        return left_s if timeout_s is None else min(timeout_s, left_s)
