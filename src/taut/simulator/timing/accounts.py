"""Where one worker's virtual time went, and what it moved. Whole nanoseconds, so that the split sums to the wall time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from taut.core.messages import TIME_PARTS, Statistics

if TYPE_CHECKING:
    from taut.simulator.trace import Trace

COMPUTE, ENCODE, SEND, WAIT, MERGE, DATA = range(len(TIME_PARTS))


class Account:
    """``charge`` books the time since the last call.

    >>> account = Account(0, began_ns=0)
    >>> account.charge(COMPUTE, 5_000_000); account.charge(WAIT, 7_000_000)
    >>> account.spent_ns[COMPUTE], account.spent_ns[WAIT], account.last_ns
    (5000000, 2000000, 7000000)
    """

    __slots__ = ("began_ns", "bytes_sent", "included", "last_ns", "rank", "sent", "spent_ns", "trace")

    def __init__(self, rank: int, began_ns: int, trace: Trace | None = None) -> None:
        self.rank, self.began_ns, self.last_ns, self.trace = rank, began_ns, began_ns, trace
        self.spent_ns = [0] * len(TIME_PARTS)
        self.bytes_sent = self.sent = self.included = 0

    @property
    def exchanged(self) -> bool:
        """Return whether an update of this worker went to another one."""
        return self.sent > 0 and self.bytes_sent > 0

    def charge(self, kind: int, at_ns: int) -> None:
        """Book the time until ``at_ns`` as ``kind``. What is over already stays as it was booked."""
        begin_ns = self.last_ns
        if at_ns > begin_ns:
            self.spent_ns[kind] += at_ns - begin_ns
            self.last_ns = at_ns
            if self.trace is not None:
                self.trace.span(self.rank, TIME_PARTS[kind], begin_ns, at_ns)

    def statistics(
        self, steps: int, samples: int, dense_nbytes: int, staleness: float, density: float, counted: str
    ) -> Statistics:
        """Return the account in the figures of a real run."""
        spent: dict[str, Any] = {f"{part}_s": spent * 1e-9 for part, spent in zip(TIME_PARTS, self.spent_ns, strict=True)}
        return Statistics(
            steps=steps,
            samples=samples,
            bytes_sent=self.bytes_sent,
            bytes_dense=dense_nbytes,
            updates_sent=self.sent,
            updates_included=self.included,
            staleness=staleness,
            density=density,
            wall_s=sum(self.spent_ns) * 1e-9,
            counted=counted[:1024],
            **spent,
        )
