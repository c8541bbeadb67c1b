"""The signs that a scan found: words, which are sent entropy-coded, or a bitmap if there are more than one in 16."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from taut.codecs.parallel import BLOCK, run_tasks, split
from taut.codecs.wire.merge import pack_words, write_bitmap
from taut.codecs.wire.payload import Header, Kind, bit_values, build

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
    """Return the buffer for a scan's words: one element in 16, and a block so that a scan can always go on."""
    return np.empty(size // WORDS_PER_BITMAP + 64, np.uint32)


Scan = Callable[[int, int, npt.NDArray[np.uint32]], Signs]  # (lo, hi, buffer for words) -> signs; words count from lo
Write = Callable[[npt.NDArray[np.uint32], int, npt.NDArray[np.uint8]], None]


def write_words(words: npt.NDArray[np.uint32], first: int, bits: npt.NDArray[np.uint8]) -> None:
    """Write words of elements from ``first`` on into a bitmap that starts there."""
    bits[:] = write_bitmap((words >> 1).astype(np.int64) - first, (words & 1).astype(bool), 4 * bits.size)


def collect(
    scan: Callable[[int], tuple[int, int]], lo: int, hi: int, out: npt.NDArray[np.uint32], write: Write = write_words
) -> Signs:
    """Run ``scan(start) -> (words in out, where it stopped)`` until ``hi``. The words stay words if they all fit; else
    they are moved into a bitmap each time the buffer is full, and the scan goes on."""
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


def scan_parts(scan: Scan, lo: int, hi: int, out: npt.NDArray[np.uint32], write: Write) -> Signs:
    """Run ``scan(lo, hi, out)`` on as many threads as there are and as pay. Each has the share of ``out`` that its
    elements have of the whole."""
    parts = split(lo, hi)
    if len(parts) == 1:
        return scan(lo, hi, out)
    starts = [(start - lo) // WORDS_PER_BITMAP for start, _ in parts]
    rooms = [out[a:b] for a, b in zip(starts, [*starts[1:], out.size], strict=True)]
    assert min(room.size for room in rooms) >= BLOCK  # a scan stops only where a whole block might not fit
    tasks = [(*part, room) for part, room in zip(parts, rooms, strict=True)]
    return _joined(run_tasks(scan, tasks), parts, write)


def _joined(found: list[Signs], parts: list[tuple[int, int]], write: Write) -> Signs:
    """Join the parts into what one scan over all would have found: words if these take less room than a bitmap."""
    lo, hi = parts[0][0], parts[-1][1]
    count = sum(signs.count for signs in found)
    pairs = list(zip(found, parts, strict=True))
    if count * WORDS_PER_BITMAP <= hi - lo:
        words = [_words(signs) + np.uint32((start - lo) << 1) for signs, (start, _) in pairs]
        return Signs(count, np.concatenate(words), None)
    return Signs(count, None, np.concatenate([_bits(signs, stop - start, write) for signs, (start, stop) in pairs]))


def _words(signs: Signs) -> npt.NDArray[np.uint32]:
    """Return the signs as words, if one part alone had so many that it made a bitmap."""
    if signs.words is not None:
        return signs.words
    assert signs.bits is not None
    filled = np.flatnonzero(signs.bits)
    four = bit_values()[signs.bits[filled]]
    rows, columns = four.nonzero()
    return ((filled[rows] * 4 + columns) << 1 | (four[rows, columns] < 0)).astype(np.uint32)


def _bits(signs: Signs, length: int, write: Write) -> npt.NDArray[np.uint8]:
    """Return the signs as a bitmap, if one part alone had few."""
    if signs.bits is not None:
        return signs.bits
    assert signs.words is not None
    bits = np.zeros((length + 3) // 4, np.uint8)
    write(signs.words, 0, bits)
    return bits
