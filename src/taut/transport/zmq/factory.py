"""``--transport zmq``, the default: TCP sockets, encrypted and authenticated by CURVE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from taut.core.messages import Member
from taut.transport.keys import RunKeys, Token, WorkerKeys
from taut.transport.transport import ANSWER_S, Announcer, ServerSocket, Transport, TransportFactory
from taut.transport.zmq.announce import AddressAnnouncer
from taut.transport.zmq.owner_client import ask
from taut.transport.zmq.server import SupervisorSocket
from taut.transport.zmq.transport import ZmqTransport


class Zmq(TransportFactory):
    """Both ends over ZeroMQ."""

    name: ClassVar[str] = "zmq"
    scheme: ClassVar[str] = "tcp"

    def listen(self, keys: RunKeys, bind: str, port: int, advertise: str | None) -> ServerSocket:
        return SupervisorSocket(keys, bind=bind, port=port, advertise=advertise)

    def connect(self, keys: WorkerKeys, bind: str, advertise: str | None, supervisor: tuple[str, Token]) -> Transport:
        return ZmqTransport(keys, bind=bind, advertise=advertise, supervisor=supervisor)

    def ask(self, address: str, keys: RunKeys, frames: Sequence[bytes], patience_s: float = ANSWER_S) -> list[bytes]:
        return ask(address, keys, frames, patience_s)

    def announcer(self, keys: RunKeys, members: Sequence[Member]) -> Announcer:
        return AddressAnnouncer(keys, members)
