"""Messages of the pairing over TCP: two bytes of length, then the message. A time limit holds for the whole exchange."""

from __future__ import annotations

import socket
import struct
import time

from taut.discovery.pairing import MESSAGE_NBYTES, PairingFailed


class Frames:
    """A connection that ends ``limit_s`` after it began. Every method may raise ``PairingFailed``."""

    def __init__(self, connection: socket.socket, limit_s: float) -> None:
        self._connection, self._until_s = connection, time.monotonic() + limit_s

    def send(self, data: bytes) -> None:
        self._wait()
        try:
            self._connection.sendall(struct.pack("!H", len(data)) + data)
        except OSError as error:
            raise PairingFailed(f"the connection broke: {error.strerror or error}") from None

    def receive(self) -> bytes:
        (nbytes,) = struct.unpack("!H", self._exactly(2))
        if not 0 < nbytes <= MESSAGE_NBYTES:
            raise PairingFailed(f"a message of {nbytes} bytes")
        return self._exactly(nbytes)

    def _exactly(self, nbytes: int) -> bytes:
        data = b""
        while len(data) < nbytes:
            self._wait()
            try:
                piece = self._connection.recv(nbytes - len(data))
            except OSError as error:
                raise PairingFailed(f"the connection broke: {error.strerror or error}") from None
            if not piece:
                raise PairingFailed("the other side closed the connection")
            data += piece
        return data

    def _wait(self) -> None:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise PairingFailed("the other side is too slow")
        self._connection.settimeout(left_s)
