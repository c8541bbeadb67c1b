"""Work on large vectors, cut into parts that run side by side: the kernels work without the GIL.

The number of threads is the process's, and 1 until somebody says more. Whatever it is, the result is the same to the
last bit: parts begin where the work has a seam (a block that shares a scale, a column, a piece), nothing that is
computed knows in which part it was, and what the parts found is joined in order.

>>> set_threads(2)
>>> import numpy as np
>>> squares = np.empty(2**23)
>>> over(lambda start, stop: np.square(np.arange(start, stop), out=squares[start:stop]).size, 0, 2**23)
[4194304, 4194304]

>>> from taut.codecs import parse
>>> w = np.zeros(2**23, np.float32)
>>> codec = parse("tether:slack=2^-6"); state = codec.start(w, workers=1)
>>> w[[5, 2**22, 2**23 - 1]] = 2**-6
>>> payload = codec.emit(state, 0, w.size)
>>> state.words_sent, state.b.nonzero()[0].tolist()
(3, [5, 4194304, 8388607])
>>> set_threads(1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from taut.errors import Misuse

LEAST = 1 << 22  # elements per thread: below about a millisecond of work, waking a thread costs more than it brings
HEAVY = 4  # an element of a compressor's piece, or of decoding one, takes as long as so many of a plain pass
BLOCK = 64

T = TypeVar("T")


@dataclass
class _Crew:
    """The process's threads: the caller's own, and a pool of the others once there is work for them."""

    threads: int = 1
    pool: ThreadPoolExecutor | None = None


_crew = _Crew()
_busy = ContextVar("busy", default=False)  # this thread is at a part already


def set_threads(threads: int) -> None:
    """Let kernels use so many threads, the caller's among them. One by default.

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
    """In the child of a fork: threads are not forked, so the next work makes its own."""
    _crew.pool = None


def cut(lo: int, hi: int, block: int = BLOCK, weight: int = 1) -> list[tuple[int, int]]:
    """``lo..hi-1`` in equal parts of whole blocks, one a thread; fewer where they would be too small to pay. ``weight``:
    how many elements of a plain pass take as long as one of these."""
    blocks = -(-(hi - lo) // block)
    parts = 1 if _busy.get() else max(1, min(_crew.threads, blocks, (hi - lo) * weight // LEAST))
    edges = [lo + block * (blocks * part // parts) for part in range(parts)]
    return list(zip(edges, [*edges[1:], hi], strict=True))


def over(work: Callable[[int, int], T], lo: int, hi: int, block: int = BLOCK, weight: int = 1) -> list[T]:
    """``work(start, stop)`` for parts that make up ``lo..hi-1``, by as many threads as there are and as pay; what they
    answer, in order. Parts begin at multiples of ``block`` from ``lo``. Where some fail, the error of the first of them
    is raised once all have ended.

    >>> over(lambda start, stop: stop - start, 0, 1000)
    [1000]
    """
    if _crew.threads == 1 or (hi - lo) * weight < 2 * LEAST:  # most updates: without a detour
        return [work(lo, hi)]
    return together(work, cut(lo, hi, block, weight))


def together(work: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> list[T]:
    """``work(*task)`` for every task, each by a thread of its own; as ``over``."""
    if len(tasks) == 1:
        return [work(*tasks[0])]
    if _crew.pool is None:
        _crew.pool = ThreadPoolExecutor(_crew.threads - 1, thread_name_prefix="taut-codec")
    others = [_crew.pool.submit(_alone, work, task) for task in tasks[1:]]
    try:
        first = _alone(work, tasks[0])
    finally:
        found = [other.exception() for other in others]  # no thread still writes into a vector when this is left
    for error in found:
        if error is not None:
            raise error
    return [first, *(other.result() for other in others)]


def _alone(work: Callable[..., T], task: tuple[Any, ...]) -> T:
    """A part is not cut further: its thread has no others to ask."""
    token = _busy.set(True)
    try:
        return work(*task)
    finally:
        _busy.reset(token)
