"""A worker's end of the link to the supervisor: a DEALER that proves to hold the join token."""

from __future__ import annotations

import contextlib
import secrets

import zmq

from taut.errors import Misuse
from taut.transport.endpoint import is_tcp_address
from taut.transport.framing import SUPERVISOR_QUEUE
from taut.transport.keys import Token, WorkerKeys
from taut.transport.transport import SupervisorLink
from taut.transport.zmq import options
from taut.transport.zmq.auth import VOID
from taut.transport.zmq.disconnects import happened

_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_WATCHED = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | _FAILED


class ZmqSupervisorClient(SupervisorLink):
    """``socket`` carries the messages; ``monitor`` becomes readable when ``status`` may have changed.

    Without the status "refused" a wrong token would look like a supervisor that is not up yet. "expired": a worker that
    is in the run comes back under its own key (``own``), which the supervisor knows from its Hello.
    """

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], address: str, token: Token, keys: WorkerKeys, limit_nbytes: int
    ) -> None:
        if not is_tcp_address(address):
            remedy = "copy the one that the supervisor prints"
            raise Misuse(f"supervisor address {address!r}", "tcp://HOST:PORT", remedy)
        self.status = "connecting"
        self.own: WorkerKeys | None = None
        self.address, self._token, self._keys = address, token, keys
        self.socket = context.socket(zmq.DEALER)
        options.apply(self.socket, hwm=SUPERVISOR_QUEUE, limit_nbytes=limit_nbytes)
        # The same after a reconnect, so that the supervisor knows us again; random, so that no other worker
        # can take it. It crosses the wire only encrypted.
        self.socket.routing_id = b"\x01" + secrets.token_bytes(16)
        self.monitor = self.socket.get_monitor_socket(_WATCHED)
        try:
            options.connect(self.socket, address, token.server_public, token.client_public, token.client_secret)
        except zmq.ZMQError as error:
            self.close(0.0)
            raise Misuse(f"supervisor address {address!r} ({error.strerror})", "tcp://HOST:PORT") from None

    def admitted(self) -> None:
        self.own = self._keys

    def known_as(self, keys: WorkerKeys) -> None:
        self.own = keys

    def repoint(self, address: str) -> None:
        if address == self.address or not is_tcp_address(address):
            return
        token = self._token
        options.connect(self.socket, address, token.server_public, token.client_public, token.client_secret)
        self._disconnect()
        self.address, self.status = address, "connecting"

    def _come_back(self, own: WorkerKeys) -> None:
        """Connect again under another key, anew: libzmq has given this connection up for good."""
        self._disconnect()
        mine = own.public_key.encode("ascii")
        options.connect(self.socket, self.address, self._token.server_public, mine, own.secret_key)
        self.status = "connecting"

    def _disconnect(self) -> None:
        with contextlib.suppress(zmq.ZMQError):
            self.socket.disconnect(self.address)

    def observe(self) -> None:
        """Bring ``status`` up to date."""
        for kind, value in happened(self.monitor):
            if kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self.status = "connected"
            elif kind & _FAILED:
                self.status = "expired" if kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH and value == VOID else "refused"
                if self.status == "expired" and self.own is not None:
                    self._come_back(self.own)
            elif self.status == "connected":
                self.status = "connecting"

    def close(self, linger_s: float) -> None:
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close(linger=options.milliseconds(linger_s))
