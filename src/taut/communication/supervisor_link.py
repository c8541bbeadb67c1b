"""A worker's end of the link to the supervisor: a DEALER that proves to hold the join token."""

from __future__ import annotations

import contextlib
import secrets
import struct
from typing import Literal

import zmq

from taut.communication import zmq_options
from taut.communication.endpoint import is_tcp_address
from taut.communication.keys import Token
from taut.errors import Misuse

Status = Literal["connecting", "connected", "refused"]

HWM = 256
_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_WATCHED = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | _FAILED


class SupervisorLink:
    """``socket`` carries the messages; ``monitor`` becomes readable when ``status`` may have changed.

    ``status`` is "refused" when something answers at the address but does not take this token: without it a
    wrong token would look like a supervisor that is not up yet.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str, token: Token, limit_nbytes: int) -> None:
        if not is_tcp_address(address):
            raise Misuse(
                f"supervisor address {address!r}",
                "tcp://HOST:PORT",
                "copy the one that the supervisor prints",
            )
        self.status: Status = "connecting"
        self.address, self._token = address, token
        self.socket = context.socket(zmq.DEALER)
        zmq_options.apply(self.socket, hwm=HWM, limit_nbytes=limit_nbytes)
        # The same after a reconnect, so that the supervisor knows us again; random, so that no other worker
        # can take it. It crosses the wire only encrypted.
        self.socket.routing_id = b"\x01" + secrets.token_bytes(16)
        self.monitor = self.socket.get_monitor_socket(_WATCHED)
        try:
            zmq_options.connect(self.socket, address, token.server_public, token.client_public, token.client_secret)
        except zmq.ZMQError as error:
            self.close(0.0)
            raise Misuse(f"supervisor address {address!r} ({error.strerror})", "tcp://HOST:PORT") from None

    def repoint(self, address: str) -> None:
        """Talk to the same supervisor at another address."""
        if address == self.address or not is_tcp_address(address):
            return
        token, former = self._token, self.address
        zmq_options.connect(self.socket, address, token.server_public, token.client_public, token.client_secret)
        with contextlib.suppress(zmq.ZMQError):
            self.socket.disconnect(former)
        self.address, self.status = address, "connecting"

    def observe(self) -> None:
        """Bring ``status`` up to date."""
        while True:
            try:
                event, *_ = self.monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            kind = struct.unpack_from("=H", event)[0]
            if kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self.status = "connected"
            elif kind & _FAILED:
                self.status = "refused"
            elif self.status == "connected":
                self.status = "connecting"

    def close(self, linger_s: float) -> None:
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close(linger=zmq_options.milliseconds(linger_s))
