"""Interrupting a poll from another thread: a pair of connected sockets, since a zmq socket belongs to one
thread."""

from __future__ import annotations

import socket


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

    def wake(self) -> None:
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
        self._writer.close()
        self._reader.close()
