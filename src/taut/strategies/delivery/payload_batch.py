"""Several payloads that travel as one message, and become one when they are many or large.

Adding payloads up costs a worker more than handing them on side by side, as long as they are small; what is large or
much is added up, so that neither the message nor what is kept ever grows beyond a share of the model.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from taut.errors import MalformedMessage

MANY = 16
_COUNT = struct.Struct("<I")


@dataclass
class PayloadBatch:
    """``merge`` adds payloads; beyond ``limit_nbytes`` or ``MANY`` payloads all that is here becomes one, and again when
    that has doubled. ``count``: of the updates in them.

    >>> batch = PayloadBatch(merge=lambda payloads: max(payloads), limit_nbytes=3)
    >>> for payload in (b"aa", b"b", b"c", b"d"): batch.put(payload, 1)
    >>> batch.payloads, batch.count
    ([b'c', b'd'], 4)
    """

    merge: Callable[[Sequence[bytes]], bytes]
    limit_nbytes: int
    payloads: list[bytes] = field(default_factory=list)
    nbytes: int = 0
    count: int = 0
    merged_nbytes: int = 0  # what the last addition left

    def __bool__(self) -> bool:
        return bool(self.payloads)

    def put(self, payload: bytes, count: int) -> None:
        self.payloads.append(payload)
        self.nbytes += len(payload)
        self.count += count
        much = self.nbytes > max(self.limit_nbytes, 2 * self.merged_nbytes)  # not again for every little payload
        if len(self.payloads) > 1 and (much or len(self.payloads) >= MANY):
            self.payloads = [self.merge(self.payloads)]
            self.nbytes = self.merged_nbytes = len(self.payloads[0])

    def clear(self) -> None:
        self.payloads, self.nbytes, self.count, self.merged_nbytes = [], 0, 0, 0


def bind(payloads: Sequence[bytes]) -> bytes:
    """Return the payloads in one message, the length of each before it.

    >>> unbind(bind([b"one", b"", b"three"]))
    [b'one', b'', b'three']
    """
    return b"".join(part for payload in payloads for part in (_COUNT.pack(len(payload)), payload))


def unbind(message: bytes) -> list[bytes]:
    """Return the payloads of a message. Raise ``MalformedMessage`` for one that ``bind`` did not make."""
    payloads, at = [], 0
    while at < len(message):
        start = at + _COUNT.size
        length = _COUNT.unpack_from(message, at)[0] if start <= len(message) else 0
        if start + length > len(message):
            raise MalformedMessage(f"a payload of {length} bytes in the last {len(message) - at} of a message")
        payloads.append(message[start : start + length])
        at = start + length
    return payloads
