"""What one worker knows of one neighbour, and when to send to it again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from taut.strategies.delivery.path_rate import PathRate

INITIAL_RTO_S = 1.0  # before anything was measured, as TCP does (RFC 6298)
MOST_PATIENCE = 16
MOST_WAIT_S = 16.0  # a wait does not grow beyond this by patience, unless that is less than twice what was measured


def deadline_s(once_s: float, patience: int) -> float:
    """Return how long to wait before sending again: min(once * patience, max(2 * once, 16 s)). Losses say that a path is
    bad, not that it is long: where half of all messages are lost, doubling without end would be waiting without end.

    >>> [deadline_s(1.0, patience) for patience in (1, 2, 16)], deadline_s(12.0, 16), deadline_s(100.0, 16)
    ([1.0, 2.0, 16.0], 24.0, 200.0)
    """
    return min(once_s * patience, max(2.0 * once_s, MOST_WAIT_S))


@dataclass(slots=True)
class PeerLink:
    """Cursors into this worker's own stream (``sent``, ``received`` and ``taken`` by the neighbour), and the neighbour's
    last word about itself. ``pending``: it has no state yet, so everything is held for it and nothing is sent."""

    pending: bool = True
    sent: int = 0
    received: int = 0
    taken: int = 0
    reach: int = 0  # the furthest ever sent: it may stand anywhere from `taken` to here
    flight: deque[tuple[int, int]] = field(default_factory=deque)  # (last update, bytes) sent and not yet taken
    flight_nbytes: int = 0
    round: int = 0
    blocked: bool = False
    seen: dict[int, int] = field(default_factory=dict)  # its version vector
    sealed: set[int] = field(default_factory=set)
    final: int = -1
    clock: int = 0  # its iterations, as it last told us; where the delay is bounded
    told_clock: int = 0  # ours, as we last told it
    heard: bool = False  # it has sent a report, so it holds what it publishes for us
    marked_s: float = float("-inf")  # when it was last told our hash chains
    relayed: dict[int, tuple[int, float]] = field(default_factory=dict)  # dead origin -> passed on up to, until when
    # towards it: what we owe it in reports
    report_due: bool = True
    reported_s: float = float("-inf")
    in_round: int = 0  # its round, as of its last updates
    gap: bool = False
    # timing of what it has not yet received
    oldest_s: float | None = None  # when the oldest unreceived update was sent
    rtt_s: float | None = None
    late_s: float = 0.0  # how much later than that, smoothed
    rto_s: float = INITIAL_RTO_S
    patience: int = 1  # doubled when all is sent again, 1 when what was sent last is confirmed
    rate: PathRate = field(default_factory=PathRate)
    waiting_s: float | None = None  # since when nothing was confirmed, however often it was sent

    def overdue(self, now: float) -> bool:
        """Return whether what was sent ought to have been received by now."""
        if self.oldest_s is None or self.sent <= self.received:
            return False
        return now - self.oldest_s > deadline_s(self.rto_s + self.rate.wait_s(self.flight_nbytes), self.patience)

    def confirmed(self, position: int, nbytes: int, fresh: bool, now: float) -> None:
        """Take note that the neighbour has received our updates up to ``position``, ``nbytes`` more than before.

        ``fresh``: the confirmation is of what was sent last. Else it may be of what was sent before, so its time says
        nothing, and the deadline stays as patience made it (Karn and Partridge 1987): over a path that is only slow,
        the next deadline would be missed as this one was, and everything sent twice for ever."""
        if fresh and self.oldest_s is not None:
            self.measure(now - self.oldest_s)
        if fresh:
            self.patience = 1
        if self.waiting_s is not None:
            self.rate.measure(nbytes, now - self.waiting_s)
        self.received = position
        self.oldest_s = self.waiting_s = now if self.sent > position else None

    def measure(self, rtt_s: float) -> None:
        """Update Jacobson's estimate of the round trip; the deadline for sending again follows it, RTT + 4 * lateness.

        Only what comes later than expected makes the deadline later. With the plain mean deviation a path that becomes
        ten times faster has a later deadline at first, and where little is under way measurements are rare.

        >>> link, deadlines = PeerLink(), []
        >>> for rtt_s in (4.0, 0.3, 0.3, 0.3):
        ...     link.measure(rtt_s)
        ...     deadlines.append(round(link.rto_s, 1))
        >>> deadlines
        [12.0, 10.1, 8.5, 7.2]
        """
        if self.rtt_s is None:
            self.rtt_s, self.late_s = rtt_s, rtt_s / 2
        else:
            late_s = rtt_s - self.rtt_s
            self.late_s += (max(0.0, late_s) - self.late_s) / (4 if late_s > self.late_s else 8)
            self.rtt_s += late_s / (8 if late_s > 0 else 4)
        self.rto_s = max(INITIAL_RTO_S, self.rtt_s + 4 * self.late_s)

    def resume(self, position: int) -> None:
        """Take note that the neighbour has a state that contains our updates up to ``position``."""
        self.pending = False
        self.sent = self.received = self.taken = self.reach = position
        self.oldest_s = self.waiting_s = None

    def advance(self, hi: int, nbytes: int, now: float) -> None:
        """Take note that updates up to ``hi`` are on their way."""
        self.sent = hi
        self.reach = max(self.reach, hi)
        self.flight.append((hi, nbytes))
        self.flight_nbytes += nbytes
        self.oldest_s = now if self.oldest_s is None else self.oldest_s
        self.waiting_s = now if self.waiting_s is None else self.waiting_s

    def take(self, position: int) -> None:
        """Take note that the neighbour has included our updates up to ``position``."""
        self.taken = max(self.taken, position)
        while self.flight and self.flight[0][0] <= self.taken:
            self.flight_nbytes -= self.flight.popleft()[1]

    def rewind(self, position: int) -> None:
        """Send again from ``position``."""
        self.sent = position
        while self.flight and self.flight[-1][0] > position:
            self.flight_nbytes -= self.flight.pop()[1]

    def send_again(self) -> None:
        """Send all that the neighbour has not received, in another round: what it says of the one before is too late."""
        self.rewind(self.received)
        self.round += 1
        self.oldest_s = None
