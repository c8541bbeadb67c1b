"""Who may connect: ZeroMQ's authentication protocol (ZAP, RFC 27), answered inside the polling loop.

libzmq asks once per handshake, over an in-process socket, and the client waits for the answer. Answering from the loop
that owns the sockets needs no thread of its own, and no lock around the set of admitted keys. One per zmq context.
"""

from __future__ import annotations

from collections.abc import Callable

import zmq
from zmq.utils import z85

DOMAIN = b"taut"
_ENDPOINT = "inproc://zeromq.zap.01"
_HELD = 1024
STRANGER, VOID = 400, 500  # ZAP has no other codes for a refusal


class Gatekeeper:
    """Answers for the CURVE servers of one context: ``allowed`` is asked with the client's key (z85).

    ``patient``: a stranger is not sent away but left waiting, as it may be admitted in a moment: two workers
    hear of each other from the supervisor at different times. (libzmq gives up for good on a server that
    refused it, and notices a silent refusal only when the handshake times out.)

    ``void``: whether a key that is not allowed was so once. Its holder gets another status code, which is all that
    libzmq tells a client of a refusal.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        allowed: Callable[[str], bool],
        *,
        patient: bool,
        void: Callable[[str], bool] | None = None,
    ) -> None:
        self._allowed, self._patient, self._void = allowed, patient, void
        self._held: dict[str, list[bytes]] = {}  # key -> the start of the answer that it waits for
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind(_ENDPOINT)

    def serve(self) -> None:
        """Answer what is asked now."""
        while True:
            try:
                request = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            envelope, empty, version, number, _domain, _address, _identity, mechanism, *credentials = request
            answer = [envelope, empty, version, number]
            if mechanism != b"CURVE" or len(credentials) != 1 or len(credentials[0]) != 32:
                self._refuse(answer)
                continue
            key = z85.encode(credentials[0]).decode("ascii")
            if self._allowed(key):
                self._accept(answer, key)
            elif self._patient:
                self._hold(answer, key)
            else:
                self._refuse(answer, VOID if self._void is not None and self._void(key) else STRANGER)

    def release(self, key: str) -> None:
        """Let ``key`` in if it waits: it is allowed from now on."""
        answer = self._held.pop(key, None)
        if answer is not None:
            self._accept(answer, key)

    def close(self) -> None:
        self.socket.close()

    def _hold(self, answer: list[bytes], key: str) -> None:
        # An earlier question of the same key is from a connection that was given up. The number is bounded
        # because anyone can make up keys.
        self._held.pop(key, None)
        if len(self._held) >= _HELD:
            self._refuse(self._held.pop(next(iter(self._held))))
        self._held[key] = answer

    def _accept(self, answer: list[bytes], key: str) -> None:
        # The user id is what every frame of this connection will carry as the proof of its sender.
        self.socket.send_multipart([*answer, b"200", b"OK", key.encode("ascii"), b""], zmq.NOBLOCK)

    def _refuse(self, answer: list[bytes], status: int = STRANGER) -> None:
        self.socket.send_multipart([*answer, b"%d" % status, b"not admitted", b"", b""], zmq.NOBLOCK)


def guard(server: zmq.Socket[bytes], secret_key: bytes) -> None:
    """Make ``server`` a CURVE server that lets in only whom its context's gatekeeper allows. Before binding."""
    server.curve_server = True
    server.curve_secretkey = secret_key
    server.zap_domain = DOMAIN
    server.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without a gatekeeper nobody gets in, rather than everybody
