"""Connections that have said nothing yet: each takes a descriptor, and anybody can open them.

A process has a limited number of descriptors. A connection is a stranger's until its first message, which can only come
after the handshake. At most a quarter of all descriptors are left to strangers: beyond that the oldest are cut. So there
are always descriptors for workers and for files. A worker that is cut in its handshake, when too many others came at the
same moment, connects again.
"""

from __future__ import annotations

import socket
import sys
from contextlib import suppress

SHARE = 4  # one in so many descriptors may be a stranger's
LEAST = 16
MOST_DESCRIPTORS = 65_536
ASSUMED = 1024  # where the system does not say


class Strangers:
    """``most``: how many are left alone. Descriptors come from the monitor of a socket.

    >>> strangers = Strangers(most=2)
    >>> for descriptor in (5, 6, 7, 8):
    ...     strangers.accepted(descriptor)
    >>> strangers.spoke(6)
    >>> strangers.excess(), strangers.excess()
    ([5], [])
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._waiting: dict[int, None] = {}  # in the order in which they came

    def accepted(self, descriptor: int) -> None:
        self._waiting[descriptor] = None

    def spoke(self, descriptor: int) -> None:
        """Take note that a message came by this connection: it is no stranger's."""
        self._waiting.pop(descriptor, None)

    def closed(self, descriptor: int) -> None:
        self._waiting.pop(descriptor, None)

    def excess(self) -> list[int]:
        """Return the descriptors of those that are too many; they are forgotten."""
        surplus = list(self._waiting)[: max(0, len(self._waiting) - self.most)]
        for descriptor in surplus:
            del self._waiting[descriptor]
        return surplus


def cut(descriptor: int) -> None:
    """End the connection behind a descriptor that another owns: the owner sees its end, and closes it."""
    with suppress(OSError):  # it was closed meanwhile
        connection = socket.socket(fileno=descriptor)
        try:
            connection.shutdown(socket.SHUT_RDWR)
        finally:
            connection.detach()


def most_strangers(descriptors: int) -> int:
    """Return how many strangers a process with so many descriptors puts up with.

    >>> most_strangers(1024), most_strangers(20)
    (256, 16)
    """
    return max(LEAST, descriptors // SHARE)


def raise_limit() -> int:
    """Let this process open as many descriptors as the system allows it; return how many that are."""
    if sys.platform == "win32":
        return ASSUMED
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted
