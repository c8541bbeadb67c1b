"""The supervisor's socket: a ROUTER that only holders of the join token can speak to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq

from taut.communication import zmq_options
from taut.communication.bundle import bundle, opened
from taut.communication.endpoint import bind as bind_endpoint
from taut.communication.framing import LIMIT_NBYTES
from taut.communication.keys import RunKeys
from taut.communication.waker import Waker
from taut.communication.zap import Gatekeeper, guard
from taut.errors import Misuse

HWM = 1_000  # control messages are small, and a worker that reads none of a thousand is being given up anyway
BATCH = 256


class SupervisorSocket:
    """A ``ServerSocket`` over ZeroMQ. ``bind`` and ``advertise`` are as for ``ZmqTransport``; ``port`` 0 is
    any free one.

    A connection's name is a secret that its worker chose (see ``ZmqTransport``): it stays the same over
    reconnects and over a restart of the supervisor, and a newer connection of the same name takes the place
    of the older.
    """

    def __init__(self, keys: RunKeys, *, bind: str = "127.0.0.1", port: int = 0, advertise: str | None = None) -> None:
        self._closed = False
        self._waker = Waker()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        client_key = keys.client_public.decode("ascii")
        self._gatekeeper = Gatekeeper(self._context, client_key.__eq__, patient=False)
        self._router = self._context.socket(zmq.ROUTER)
        zmq_options.apply(self._router, hwm=HWM, limit_nbytes=LIMIT_NBYTES)
        self._router.router_mandatory = True  # tell us when nobody is there, instead of dropping
        self._router.router_handover = True
        guard(self._router, keys.server_secret)
        try:
            self._address = bind_endpoint(self._router, _with_port(bind, port), advertise)
        except BaseException:
            self.close()
            raise
        self._watch: list[tuple[Any, int]] = [
            (self._router, zmq.POLLIN),
            (self._gatekeeper.socket, zmq.POLLIN),
            (self._waker.fd, zmq.POLLIN),
        ]

    @property
    def address(self) -> str:
        return self._address

    def receive(self, timeout_s: float | None) -> list[tuple[bytes, list[bytes]]]:
        arrived: list[tuple[bytes, list[bytes]]] = []
        ready: list[tuple[Any, int]] = zmq.zmq_poll(self._watch, zmq_options.milliseconds(timeout_s))
        for socket, _ in ready:
            if socket is self._router:
                self._drain(arrived)
            elif socket is self._gatekeeper.socket:
                self._gatekeeper.serve()
            else:
                self._waker.clear()
        return arrived

    def send(self, connection: bytes, frames: Sequence[bytes]) -> bool:
        try:
            self._router.send_multipart([connection, *bundle(frames, LIMIT_NBYTES)], zmq.NOBLOCK)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def wake(self) -> None:
        self._waker.wake()

    def close(self, linger_s: float = 0.0) -> None:
        if self._closed:
            return
        self._closed = True
        self._router.close(linger=zmq_options.milliseconds(linger_s))
        self._gatekeeper.close()
        self._context.term()
        self._waker.close()

    def _drain(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        for _ in range(BATCH):
            try:
                connection, *frames = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            arrived.append((connection, opened(frames)))


def _with_port(bind: str, port: int) -> str:
    if not 0 <= port <= 65535:
        raise Misuse(f"port {port}", "0 (any free one) to 65535", "leave it out to get any free one")
    if not port:
        return bind
    return f"[{bind}]:{port}" if bind.count(":") > 1 and not bind.startswith("[") else f"{bind}:{port}"
