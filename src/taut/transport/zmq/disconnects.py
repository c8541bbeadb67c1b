"""Which of a server's connections were closed by the other end: a process that dies takes its sockets with it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import zmq


@dataclass(slots=True)
class Disconnects:
    """libzmq's monitor names the descriptor of a connection that was lost, and each message the one that it came by.

    A worker that reconnected in the meantime speaks by another descriptor: the end of its old one means nothing. As
    descriptors are used again, the end of one may be taken for that of its successor: the next message shows that
    this one lives. So all of this is a hint.

    >>> closures = Disconnects()
    >>> closures.came(b"a", 7), closures.came(b"b", 8), closures.came(b"a", 9)
    (None, None, None)
    >>> closures.lost(7), closures.lost(8), closures.lost(8)
    (None, None, None)
    >>> closures.take()
    [b'b']
    """

    _names: dict[int, bytes] = field(default_factory=dict)  # by descriptor
    _descriptors: dict[bytes, int] = field(default_factory=dict)  # by name: the last one
    _closed: dict[bytes, None] = field(default_factory=dict)  # in order

    def came(self, name: bytes, descriptor: int) -> None:
        """Take note of a message of connection ``name``."""
        if self._names.get(descriptor) != name:
            self.lost(descriptor)  # its previous owner has no use for it
            self._names[descriptor] = name
        self._descriptors[name] = descriptor
        self._closed.pop(name, None)

    def lost(self, descriptor: int) -> None:
        """Take note that a connection was closed, after all that came by it was told of."""
        name = self._names.pop(descriptor, None)
        if name is not None and self._descriptors.get(name) == descriptor:
            del self._descriptors[name]
            self._closed[name] = None

    def take(self) -> list[bytes]:
        """Return connections that were closed since the last call, and have not been heard by a new one."""
        closed = list(self._closed)
        self._closed.clear()
        return closed


def happened(monitor: zmq.Socket[bytes]) -> list[tuple[int, int]]:
    """Return what the monitor of a socket tells of its connections: kind and descriptor, or code, of each event."""
    events: list[tuple[int, int]] = []
    while True:
        try:
            event, *_ = monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return events
        events.append(struct.unpack_from("=HI", event))
