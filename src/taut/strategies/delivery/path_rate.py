"""How fast the path to a neighbour carries bytes, and what follows: how much may be under way, and for how long.

The rate is what was confirmed by the time for which something was under way and unconfirmed, both with a half-life:

    bytes_per_s = sum(nbytes * keep) / sum(busy_s * keep),    keep = 1/2 ** (busy seconds since / HALF_LIFE_S)

Confirmations that come in a clump, since they waited behind what goes the other way, change the sums little: the long
wait before them counts, too. What is under way is bounded to what the path carries in ``SPAN_S``, so confirmations,
which wait behind it, come about as soon; a connection that breaks loses no more than that.
"""

from __future__ import annotations

from dataclasses import dataclass

SPAN_S = 2.0
HALF_LIFE_S = 10.0
# Of a path that was not measured. What is under way over a slow path must not be sent again: that only adds to it.
# Workers at 1 Mbit/s sent 0.8 MB of updates four times over, and went on sending them while the final model was uploaded.
UNKNOWN_BYTES_PER_S, UNKNOWN_S = 16e3, 1.0
SLOWEST_BYTES_PER_S = 4e3  # a longer silence is a peer that was stopped, or a broken connection
LEAST_NBYTES = 128 << 10  # under way, however slow the path
PARTS = 8  # in what is under way
LEAST_PART_NBYTES = 32 << 10
TRUSTED_NBYTES = 1 << 20  # what the rate of a few bytes is believed for, at first
FAST_BYTES_PER_S = 1e6  # for the rest
SAMPLE_NBYTES = 16 << 10  # less does not show that a path is slow: it may have waited for a timer


@dataclass(slots=True)
class PathRate:
    """The sums of the rate, for one neighbour.

    >>> rate = PathRate()
    >>> rate.bytes_per_s, rate.wait_s(32_000)
    (16000.0, 4.0)
    >>> for _ in range(20): rate.measure(125_000, busy_s=1.0)
    >>> round(rate.bytes_per_s, -4), round(rate.window_nbytes, -4)
    (120000.0, 250000)
    """

    nbytes: float = UNKNOWN_S * UNKNOWN_BYTES_PER_S
    busy_s: float = UNKNOWN_S

    @property
    def bytes_per_s(self) -> float:
        return self.nbytes / self.busy_s

    @property
    def window_nbytes(self) -> int:
        """Return how much may be under way."""
        return max(LEAST_NBYTES, int(SPAN_S * self.bytes_per_s))

    @property
    def part_nbytes(self) -> int:
        """Return how much may be in one message, of those that can be cut."""
        return max(LEAST_PART_NBYTES, self.window_nbytes // PARTS)

    def measure(self, nbytes: int, busy_s: float) -> None:
        """Take note that ``nbytes`` were confirmed, ``busy_s`` after the confirmation before, or after they were sent
        if nothing was under way before them."""
        if nbytes < SAMPLE_NBYTES and nbytes < busy_s * self.bytes_per_s:
            return
        busy_s = min(busy_s, nbytes / SLOWEST_BYTES_PER_S)
        keep = 0.5 ** (busy_s / HALF_LIFE_S)
        self.nbytes = keep * self.nbytes + nbytes
        self.busy_s = keep * self.busy_s + busy_s

    def wait_s(self, nbytes: int) -> float:
        """Return how long ``nbytes`` may take: twice as long as by the rate, as far as enough bytes back it."""
        trusted = min(nbytes, max(TRUSTED_NBYTES, 16.0 * self.nbytes))
        return 2.0 * trusted / self.bytes_per_s + (nbytes - trusted) / FAST_BYTES_PER_S
