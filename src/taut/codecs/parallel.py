"""Work on large vectors, split into parts that run side by side: the kernels work without the GIL.

The number of threads is set for the process, 1 by default. Whatever it is, the result is the same to the last bit: parts
begin at a boundary of the work (of a block that shares a scale, a column, a piece), no computation depends on its part,
and the results of the parts are joined in order.

>>> set_threads(2)
>>> import numpy as np
>>> squares = np.empty(2**23)
>>> run_parts(lambda start, stop: np.square(np.arange(start, stop), out=squares[start:stop]).size, 0, 2**23)
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
HEAVY = 4  # compressing or decoding an element takes as long as this many elements of a plain pass
BLOCK = 64

T = TypeVar("T")


@dataclass
class _Threads:
    """The process's threads: the caller's own, and a pool of the others once there is work for them."""

    threads: int = 1
    pool: ThreadPoolExecutor | None = None


_threads = _Threads()
_busy = ContextVar("busy", default=False)  # this thread runs a part already


def set_threads(threads: int) -> None:
    """Let kernels use this many threads, the caller's among them. One by default.

    >>> set_threads(0)
    Traceback (most recent call last):
    taut.errors.Misuse: 0 threads: expected at least one
    """
    if threads < 1:
        raise Misuse(f"{threads} threads", "at least one")
    if threads != _threads.threads and _threads.pool is not None:
        _threads.pool.shutdown(wait=False)  # running tasks end first
        _threads.pool = None
    _threads.threads = threads


def forget_pool() -> None:
    """Forget the pool in the child of a fork: threads are not forked, so the next work makes its own."""
    _threads.pool = None


def split(lo: int, hi: int, block: int = BLOCK, weight: int = 1) -> list[tuple[int, int]]:
    """Split ``lo..hi-1`` into equal parts of whole blocks, one a thread; fewer where they would be too small to pay.
    ``weight``: how many elements of a plain pass take as long as one of these."""
    blocks = -(-(hi - lo) // block)
    parts = 1 if _busy.get() else max(1, min(_threads.threads, blocks, (hi - lo) * weight // LEAST))
    edges = [lo + block * (blocks * part // parts) for part in range(parts)]
    return list(zip(edges, [*edges[1:], hi], strict=True))


def run_parts(work: Callable[[int, int], T], lo: int, hi: int, block: int = BLOCK, weight: int = 1) -> list[T]:
    """Call ``work(start, stop)`` for parts that make up ``lo..hi-1``, on as many threads as there are and as pay; return
    the results in order. Parts begin at multiples of ``block`` from ``lo``. If some fail, the error of the first of them
    is raised once all have ended.

    >>> run_parts(lambda start, stop: stop - start, 0, 1000)
    [1000]
    """
    if _threads.threads == 1 or (hi - lo) * weight < 2 * LEAST:  # most updates
        return [work(lo, hi)]
    return run_tasks(work, split(lo, hi, block, weight))


def run_chunks(work: Callable[[int, int], T], lo: int, hi: int, chunk: int, weight: int = 1) -> list[T]:
    """Call ``work(start, stop)`` for each ``chunk`` of ``lo..hi-1``, the last perhaps shorter, on as many threads as
    ``run_parts``; return the results in order.

    >>> run_chunks(lambda start, stop: stop - start, 0, 5, 2)
    [2, 2, 1]
    """

    def some(start: int, stop: int) -> list[T]:
        return [work(first, min(first + chunk, stop)) for first in range(start, stop, chunk)]

    return [result for results in run_parts(some, lo, hi, chunk, weight) for result in results]


def run_tasks(work: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> list[T]:
    """Call ``work(*task)`` for every task, each on a thread of its own; return and raise as ``run_parts``."""
    if len(tasks) == 1:
        return [work(*tasks[0])]
    if _threads.pool is None:
        _threads.pool = ThreadPoolExecutor(_threads.threads - 1, thread_name_prefix="taut-codec")
    others = [_threads.pool.submit(_run_alone, work, task) for task in tasks[1:]]
    try:
        first = _run_alone(work, tasks[0])
    finally:
        found = [other.exception() for other in others]  # no thread still writes into a vector when this is left
    for error in found:
        if error is not None:
            raise error
    return [first, *(other.result() for other in others)]


def _run_alone(work: Callable[..., T], task: tuple[Any, ...]) -> T:
    """Run a part, which is not split further: its thread has no others to ask."""
    token = _busy.set(True)
    try:
        return work(*task)
    finally:
        _busy.reset(token)
