"""A supervisor that came back on another address tells the workers of its run where it is now.

It knows from its store where they are reached, and proves to be their supervisor by its key, whose public half every
worker holds (it is in the join token).
"""

from __future__ import annotations

from collections.abc import Sequence

import zmq

from taut.core.messages import Member, Moved
from taut.transport.frame_packing import bundle
from taut.transport.framing import LIMIT_NBYTES, encode
from taut.transport.keys import RunKeys
from taut.transport.transport import Announcer
from taut.transport.zmq import options

HWM = 4


class AddressAnnouncer(Announcer):
    """One connection to each of ``members``; ``announce`` tells them the same again, as often as it is called."""

    def __init__(self, keys: RunKeys, members: Sequence[Member]) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._sockets: dict[int, zmq.Socket[bytes]] = {}
        for member in members:
            push = self._context.socket(zmq.PUSH)
            options.apply(push, hwm=HWM, limit_nbytes=LIMIT_NBYTES)
            theirs = member.public_key.encode("ascii")
            options.connect(push, member.address, theirs, keys.server_public, keys.server_secret)
            self._sockets[member.rank] = push

    def announce(self, address: str, term: int, ranks: Sequence[int]) -> None:
        for rank in [rank for rank in self._sockets if rank not in ranks]:
            self._sockets.pop(rank).close(linger=0)
        frames = bundle(encode(Moved(address, term), ()), LIMIT_NBYTES)
        for push in self._sockets.values():
            try:
                push.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                continue  # it is not there yet: the next time

    def close(self) -> None:
        for push in self._sockets.values():
            push.close(linger=0)
        self._sockets.clear()
        self._context.term()
