"""What a scan found: words, which are sent entropy-coded, or a bitmap once there are more than one in 16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from taut.codecs.packing import pack_words, write_bitmap
from taut.codecs.payload import Header, Kind, build

WORDS_PER_BITMAP = 16  # a word takes the room of 16 elements of a bitmap


@dataclass(frozen=True)
class Signs:
    """``words`` (a view of the caller's buffer, good until the next scan) or ``bits``; ``count`` signs."""

    count: int
    words: npt.NDArray[np.uint32] | None
    bits: npt.NDArray[np.uint8] | None

    def payload(self, quantum: float, base: int, length: int) -> bytes | None:
        if self.count == 0:
            return None
        if self.bits is not None:
            return build(Header(Kind.BITMAP, quantum, base, length, self.count), self.bits)
        assert self.words is not None
        return pack_words(self.words, quantum, base, length)


def room_for_words(size: int) -> npt.NDArray[np.uint32]:
    """The buffer a scan writes words into: one element in 16, and a block so that a scan can always go on."""
    return np.empty(size // WORDS_PER_BITMAP + 64, np.uint32)


Write = Callable[[npt.NDArray[np.uint32], int, npt.NDArray[np.uint8]], None]


def write_words(words: npt.NDArray[np.uint32], first: int, bits: npt.NDArray[np.uint8]) -> None:
    """Words of elements from ``first`` on into a bitmap that starts there."""
    bits[:] = write_bitmap((words >> 1).astype(np.int64) - first, (words & 1).astype(bool), 4 * bits.size)


def collect(
    scan: Callable[[int], tuple[int, int]],
    lo: int,
    hi: int,
    out: npt.NDArray[np.uint32],
    write: Write = write_words,
) -> Signs:
    """Run ``scan(start) -> (words in out, where it stopped)`` until ``hi``. The words stay words if they all
    fit; else they are moved into a bitmap each time the buffer is full, and the scan goes on."""
    bits: npt.NDArray[np.uint8] | None = None
    total, start = 0, lo
    while start < hi:
        first = start
        count, start = scan(first)
        total += count
        words = out[:count]
        if bits is None and start == hi and count * WORDS_PER_BITMAP <= hi - lo:
            return Signs(total, words, None)
        if bits is None:
            bits = np.zeros((hi - lo + 3) // 4, np.uint8)
        # lo and every stop are multiples of 64, so no byte of the bitmap belongs to two calls of scan
        write(words, first - lo, bits[(first - lo) // 4 : (start - lo + 3) // 4])
    assert bits is not None
    return Signs(total, None, bits)
