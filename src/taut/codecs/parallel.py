"""Scans of large vectors, cut into parts that run side by side: the kernels work without the GIL.

The number of threads is the process's, and 1 until somebody says more. Whatever it is, the result is the same to the
last bit: elements do not know of each other, and what the parts found is joined in order.

>>> from taut.codecs import parse
>>> import numpy as np
>>> set_threads(2)
>>> w = np.zeros(2**23, np.float32)
>>> codec = parse("tether:slack=2^-6"); state = codec.start(w, workers=1)
>>> w[[5, 2**22, 2**23 - 1]] = 2**-6
>>> payload = codec.emit(state, 0, w.size)
>>> state.words_sent, state.b.nonzero()[0].tolist()
(3, [5, 4194304, 8388607])
>>> set_threads(1)
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from taut.codecs.payload import bit_values
from taut.codecs.signs import WORDS_PER_BITMAP, Signs, Write
from taut.errors import Misuse

LEAST = 1 << 22  # elements per thread: below about a millisecond of work, waking a thread costs more than it brings
BLOCK = 64

U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]
Scan = Callable[[int, int, U32], Signs]  # of lo..hi-1, with room for words; the words count from lo


@dataclass
class _Crew:
    """The process's threads: the caller's own, and a pool of the others once there is work for them."""

    threads: int = 1
    pool: ThreadPoolExecutor | None = None


_crew = _Crew()


def set_threads(threads: int) -> None:
    """Let scans use so many threads, the caller's among them. One by default.

    >>> set_threads(0)
    Traceback (most recent call last):
    taut.errors.Misuse: 0 threads: expected at least one
    """
    if threads < 1:
        raise Misuse(f"{threads} threads", "at least one")
    if threads != _crew.threads and _crew.pool is not None:
        _crew.pool.shutdown(wait=False)  # what is running there ends first
        _crew.pool = None
    _crew.threads = threads


def get_threads() -> int:
    return _crew.threads


def forget_pool() -> None:
    """In the child of a fork: threads are not forked, so the next scan makes its own."""
    _crew.pool = None


def cut(lo: int, hi: int) -> list[tuple[int, int]]:
    """``lo..hi-1`` in equal parts of whole blocks, one a thread; fewer where they would be too small to pay."""
    parts = max(1, min(_crew.threads, (hi - lo) // LEAST))
    blocks = -(-(hi - lo) // BLOCK)
    edges = [lo + BLOCK * (blocks * part // parts) for part in range(parts)]
    return list(zip(edges, [*edges[1:], hi], strict=True))


def side_by_side(scan: Scan, lo: int, hi: int, out: U32, write: Write) -> Signs:
    """``scan(lo, hi, out)``, by as many threads as there are and as pay. Each has the share of ``out`` that its elements
    have of the whole."""
    parts = cut(lo, hi)
    if len(parts) == 1:
        return scan(lo, hi, out)
    if _crew.pool is None:
        _crew.pool = ThreadPoolExecutor(_crew.threads - 1, thread_name_prefix="taut-scan")
    starts = [(start - lo) // WORDS_PER_BITMAP for start, _ in parts]
    rooms = [out[a:b] for a, b in zip(starts, [*starts[1:], out.size], strict=True)]
    assert min(room.size for room in rooms) >= BLOCK  # a scan stops only where a whole block might not fit
    others = [_crew.pool.submit(scan, *part, room) for part, room in zip(parts[1:], rooms[1:], strict=True)]
    try:
        first = scan(*parts[0], rooms[0])
    finally:
        found = [other.result() for other in others]  # no thread still writes into w when this is left
    return _joined([first, *found], parts, write)


def _joined(found: list[Signs], parts: list[tuple[int, int]], write: Write) -> Signs:
    """What one scan over all parts would have found: words if they take less room than a bitmap, all in all."""
    lo, hi = parts[0][0], parts[-1][1]
    count = sum(signs.count for signs in found)
    pairs = list(zip(found, parts, strict=True))
    if count * WORDS_PER_BITMAP <= hi - lo:
        words = [_words(signs) + np.uint32((start - lo) << 1) for signs, (start, _) in pairs]
        return Signs(count, np.concatenate(words), None)
    return Signs(count, None, np.concatenate([_bits(signs, stop - start, write) for signs, (start, stop) in pairs]))


def _words(signs: Signs) -> U32:
    """As words, where one part alone had so many signs that it made a bitmap."""
    if signs.words is not None:
        return signs.words
    assert signs.bits is not None
    places = np.flatnonzero(signs.bits)
    four = bit_values()[signs.bits[places]]
    rows, columns = four.nonzero()
    return ((places[rows] * 4 + columns) << 1 | (four[rows, columns] < 0)).astype(np.uint32)


def _bits(signs: Signs, length: int, write: Write) -> U8:
    """As a bitmap, where one part alone had few signs."""
    if signs.bits is not None:
        return signs.bits
    assert signs.words is not None
    bits = np.zeros((length + 3) // 4, np.uint8)
    write(signs.words, 0, bits)
    return bits
