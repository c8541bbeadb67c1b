"""Hash chains of what each origin sent: workers notice an origin that sends different updates to different workers.

    c_n  =  H(c_(n-1), payload of update n)          c begins anew with every block of ``BLOCK`` updates

A worker's reports carry its last values (``marks``). A neighbour with another value at the same position holds other
updates of that origin. A refused update counts as an empty payload: the chain covers what took effect. The value is
unknown until the next block after updates that came merged into one (others may have had them one by one), and after a
state was taken over from a donor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256  # the fastest of hashlib's on processors with instructions for it

BLOCK = 256  # updates
KEPT = 1024  # values: a neighbour's marks may be older than ours
VALUE_NBYTES = 16


@dataclass(slots=True)
class Chain:
    """The hash chain of one origin's updates, at one worker.

    >>> one, other = Chain(), Chain()
    >>> for chain, second in ((one, b"b"), (other, b"c")):
    ...     chain.add(1, 1, b"a")
    ...     chain.add(2, 2, second)
    >>> [other.contradicts(1, one.values[1]), other.contradicts(2, one.values[2]), other.contradicts(3, b"")]
    [False, True, False]
    """

    head: int = 0
    value: bytes | None = b""  # None: unknown
    block_end: int = 0  # of the last complete block
    values: dict[int, bytes] = field(default_factory=dict)  # by position, the latest

    def add(self, lo: int, hi: int, payload: bytes) -> None:
        """Add updates ``lo..hi``, which took effect here as one payload."""
        if hi > lo:
            self.restart(hi)
            return
        before = b"" if (lo - 1) % BLOCK == 0 else self.value
        self.head, self.value = hi, None
        if before is None:
            return
        digest = sha256(before)
        digest.update(payload)
        self.value = self.values[hi] = digest.digest()[:VALUE_NBYTES]
        if hi % BLOCK == 0:
            self.block_end = hi
        if len(self.values) > KEPT:
            del self.values[next(iter(self.values))]

    def restart(self, position: int) -> None:
        """Note that updates up to ``position`` cannot be compared."""
        self.head, self.value = position, None

    def marks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the last value, and that of the last complete block."""
        for position in {self.block_end, self.head}:
            if position in self.values:
                yield position, self.values[position]

    def contradicts(self, position: int, value: bytes) -> bool:
        """Return whether a neighbour that has ``value`` at ``position`` holds other updates than this worker."""
        mine = self.values.get(position)
        return mine is not None and mine != value
