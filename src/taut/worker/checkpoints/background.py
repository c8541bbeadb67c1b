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

from taut.worker.checkpoints.writer_program import give_way

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
        queue: SimpleQueue[Task | None] = SimpleQueue()
        self.submit: Callable[[Task], None] = queue.put
        threading.Thread(target=_do, args=(queue,), name=name, daemon=True).start()
        weakref.finalize(self, queue.put, None)


def _do(queue: SimpleQueue[Task | None]) -> None:
    give_way()
    while (task := queue.get()) is not None:
        try:
            task()
        except Exception:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
        del task  # it may hold the owner of the queue
