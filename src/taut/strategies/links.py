"""What one worker knows of one neighbour, and when to send to it again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

INITIAL_RTO_S = 1.0  # before anything was measured, as TCP does (RFC 6298)
SLOW_BYTES_PER_S = 1e6  # what is under way is given the time that so slow a path needs: sending again only adds to it
MOST_PATIENCE = 16


@dataclass(slots=True)
class Link:
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
    relayed: dict[int, tuple[int, float]] = field(default_factory=dict)  # dead origin -> passed on up to, when
    # towards it: what we owe it in reports
    report_due: bool = True
    reported_s: float = float("-inf")
    in_round: int = 0  # its round, as of its last updates
    gap: bool = False
    # timing of what it has not yet received
    oldest_s: float | None = None  # when the oldest unreceived update was sent
    rtt_s: float | None = None
    rtt_var_s: float = 0.0
    rto_s: float = INITIAL_RTO_S
    patience: int = 1  # doubled while sending again does not help, 1 when the path works

    def overdue(self, now: float) -> bool:
        """What was sent ought to have been received by now."""
        if self.oldest_s is None or self.sent <= self.received:
            return False
        return now - self.oldest_s > (self.rto_s + self.flight_nbytes / SLOW_BYTES_PER_S) * self.patience

    def measure(self, rtt_s: float) -> None:
        """Jacobson's estimate of the round trip; the deadline for sending again follows it."""
        if self.rtt_s is None:
            self.rtt_s, self.rtt_var_s = rtt_s, rtt_s / 2
        else:
            self.rtt_var_s += (abs(rtt_s - self.rtt_s) - self.rtt_var_s) / 4
            self.rtt_s += (rtt_s - self.rtt_s) / 8
        self.rto_s = max(INITIAL_RTO_S, self.rtt_s + 4 * self.rtt_var_s)

    def resume(self, position: int) -> None:
        """It has a state that contains our updates up to ``position``."""
        self.pending = False
        self.sent = self.received = self.taken = self.reach = position
        self.oldest_s = None

    def advance(self, hi: int, nbytes: int, now: float) -> None:
        """Updates up to ``hi`` are on their way."""
        self.sent = hi
        self.reach = max(self.reach, hi)
        self.flight.append((hi, nbytes))
        self.flight_nbytes += nbytes
        if self.oldest_s is None:
            self.oldest_s = now

    def take(self, position: int) -> None:
        """It has included our updates up to ``position``."""
        self.taken = max(self.taken, position)
        while self.flight and self.flight[0][0] <= self.taken:
            self.flight_nbytes -= self.flight.popleft()[1]

    def rewind(self, position: int) -> None:
        """Send again from ``position``."""
        self.sent = position
        while self.flight and self.flight[-1][0] > position:
            self.flight_nbytes -= self.flight.pop()[1]

    def send_again(self) -> None:
        """All that it has not received, in another round: what it says of the one before is too late."""
        self.rewind(self.received)
        self.round += 1
        self.oldest_s = None
