"""``--transport zmq``, the default: TCP sockets, encrypted and authenticated by CURVE.

The run's owner, who can read its keys, gives the supervisor orders: one order, one answer. A supervisor that came back at
another address tells the workers where it is now: it knows from its store where they are reached, and its key, whose
public half is in the join token, proves who it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import ClassVar

import zmq

from taut.core.messages import Member, Moved
from taut.errors import SupervisorLost
from taut.transport.frame_packing import bundle, opened
from taut.transport.framing import LIMIT_NBYTES, encode
from taut.transport.keys import RunKeys, Token, WorkerKeys
from taut.transport.transport import ANSWER_S, ORDER_NBYTES, Announcer, ServerSocket, Transport, TransportFactory
from taut.transport.zmq import options
from taut.transport.zmq.server import SupervisorSocket
from taut.transport.zmq.transport import ZmqTransport

HWM = 4


class Zmq(TransportFactory):
    """Both ends over ZeroMQ."""

    name: ClassVar[str] = "zmq"
    scheme: ClassVar[str] = "tcp"

    def listen(self, keys: RunKeys, bind: str, port: int, advertise: str | None) -> ServerSocket:
        return SupervisorSocket(keys, bind=bind, port=port, advertise=advertise)

    def connect(self, keys: WorkerKeys, bind: str, advertise: str | None, supervisor: tuple[str, Token]) -> Transport:
        return ZmqTransport(keys, bind=bind, advertise=advertise, supervisor=supervisor)

    def ask(self, address: str, keys: RunKeys, frames: Sequence[bytes], patience_s: float = ANSWER_S) -> list[bytes]:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        dealer = context.socket(zmq.DEALER)
        try:
            options.apply(dealer, hwm=HWM, limit_nbytes=ORDER_NBYTES)
            dealer.routing_id = b"\x02" + secrets.token_bytes(16)
            owner = keys.admin
            options.connect(dealer, address, owner.server_public, owner.client_public, owner.client_secret)
            dealer.send_multipart(bundle(frames, ORDER_NBYTES))
            if not dealer.poll(options.milliseconds(patience_s)):
                raise SupervisorLost(f"the supervisor at {address} did not answer in {patience_s:.0f} s")
            return opened(dealer.recv_multipart(zmq.NOBLOCK))
        finally:
            dealer.close(linger=0)
            context.term()

    def announcer(self, keys: RunKeys, members: Sequence[Member]) -> Announcer:
        return AddressAnnouncer(keys, members)


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
