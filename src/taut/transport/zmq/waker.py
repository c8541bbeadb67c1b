"""Interrupting a poll from another thread: a pair of connected sockets, since a zmq socket belongs to one thread.

Waking must not give up the GIL: the woken thread would take it at once, and the training thread, which only wanted to
hand over an update, would wait for it (measured: a fifth of its time). Where the C library can be called with the GIL
held, it is; the woken thread then runs while the training thread is inside its next torch operation.
"""

from __future__ import annotations

import ctypes
import socket
import sys
import threading
from collections.abc import Callable


def _write_with_gil() -> Callable[[int, bytes, int], int] | None:
    if sys.platform == "win32":
        return None  # there, sockets are no file descriptors
    try:
        write = ctypes.PyDLL(None).write
    except (OSError, AttributeError):
        return None
    write.argtypes, write.restype = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t), ctypes.c_ssize_t
    return write


_write = _write_with_gil()


class Waker:
    """``wake`` from any thread makes ``fd`` readable until ``clear``.

    >>> waker = Waker()
    >>> waker.wake(); waker.wake(); waker.clear(); waker.close(); waker.wake()
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self.fd = self._reader.fileno()
        self._descriptor = self._writer.fileno()
        self._closed = False
        self._lock = threading.Lock()

    def wake(self) -> None:
        if _write is not None:
            with self._lock:  # the descriptor may be another file's once it is closed
                if not self._closed:
                    _write(self._descriptor, b"\0", 1)  # a full pipe holds enough wake-ups: one more would tell nothing
            return
        try:
            self._writer.send(b"\0")
        except BlockingIOError:
            pass  # full of wake-ups that nobody has seen yet: one more would tell nothing
        except OSError:
            if self._writer.fileno() != -1:
                raise

    def clear(self) -> None:
        try:
            while len(self._reader.recv(4096)) == 4096:
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._writer.close()
        self._reader.close()
