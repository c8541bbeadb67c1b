"""A thread that does one thing after the other, beside the one that trains.

It is there before it is needed: whoever starts a thread waits until that one runs for the first time, on a busy machine
for as long as everybody else takes. Whoever hands over an errand does not wait.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue

from taut.worker.checkpoints.writing import wake_gently

Errand = Callable[[], None]


class BackgroundThread:
    """The thread ends when nobody holds this any more. An errand sees to its own errors; one that does not is a fault of
    ours: it is shown like that of any thread, and the next errand is done all the same.

    >>> done = threading.Event()
    >>> errands = BackgroundThread("example")
    >>> errands.hand(done.set); done.wait(10.0)
    True
    """

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Errand | None] = SimpleQueue()
        threading.Thread(target=_do, args=(self._queue,), name=name, daemon=True).start()
        weakref.finalize(self, self._queue.put, None)

    def hand(self, errand: Errand) -> None:
        """To be done after those that were handed before."""
        self._queue.put(errand)


def _do(queue: SimpleQueue[Errand | None]) -> None:
    wake_gently()
    while (errand := queue.get()) is not None:
        try:
            errand()
        except Exception:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        del errand  # it may hold who holds the queue
