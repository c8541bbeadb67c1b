"""A thread that does one task after the other, beside the one that trains.

The thread is started before it is needed: starting a thread waits until it runs for the first time, which takes long on a
busy machine. Submitting a task does not wait.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue

from taut.worker.checkpoints.writer_program import use_batch_scheduling

Task = Callable[[], None]


class BackgroundThread:
    """The thread ends when nothing holds this object any more. A task handles its own errors; an error that escapes is a
    bug of ours: it is shown like that of any thread, and the next task is done all the same.

    >>> done = threading.Event()
    >>> background = BackgroundThread("example")
    >>> background.submit(done.set); done.wait(10.0)
    True
    """

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Task | None] = SimpleQueue()
        threading.Thread(target=_do, args=(self._queue,), name=name, daemon=True).start()
        weakref.finalize(self, self._queue.put, None)

    def submit(self, task: Task) -> None:
        """Run a task after those that were submitted before."""
        self._queue.put(task)


def _do(queue: SimpleQueue[Task | None]) -> None:
    use_batch_scheduling()
    while (task := queue.get()) is not None:
        try:
            task()
        except Exception:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        del task  # it may hold the owner of the queue
