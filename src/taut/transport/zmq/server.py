"""The supervisor's socket: a ROUTER that only holders of the join token can speak to."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import zmq

from taut.errors import Misuse
from taut.transport.access import AccessControl
from taut.transport.endpoint import bind as bind_endpoint
from taut.transport.frame_packing import bundle, opened
from taut.transport.framing import LIMIT_NBYTES
from taut.transport.keys import RunKeys
from taut.transport.transport import ServerSocket
from taut.transport.zmq import options
from taut.transport.zmq.auth import Gatekeeper, guard
from taut.transport.zmq.disconnects import Disconnects, happened
from taut.transport.zmq.rate_limit import SMALL_NBYTES, RateLimit
from taut.transport.zmq.strangers import Strangers, cut, most_strangers, raise_limit
from taut.transport.zmq.waker import Waker

HWM = 1_000  # control messages are small, and a worker that reads none of a thousand is being given up anyway
BATCH = 256
MESSAGES_PER_S, BURST_S = 1_000.0, 10.0  # small ones, of one connection: a worker says some ten things a second
MOST_ORDERS = 64
MOST_FRAMES = 64
MOST_CONNECTIONS = 65_536
BACKLOG = 4096  # connections that wait to be accepted: of more, a newcomer's first words are lost, for seconds


class SupervisorSocket(ServerSocket):
    """A ``ServerSocket`` over ZeroMQ. ``bind`` and ``advertise`` are as for ``ZmqTransport``; ``port`` 0 is any free one.

    A connection's name is a secret that its worker chose (see ``ZmqTransport``): it stays the same over reconnects and
    over a restart of the supervisor, and a newer connection of the same name takes the place of the older.
    """

    def __init__(self, keys: RunKeys, *, bind: str = "127.0.0.1", port: int = 0, advertise: str | None = None) -> None:
        self._closed = False
        self._waker = Waker()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self.access = AccessControl(keys)
        self.orders: deque[tuple[bytes, list[bytes]]] = deque(maxlen=MOST_ORDERS)  # from the owner
        self._pace = RateLimit[bytes](MESSAGES_PER_S, int(BURST_S * MESSAGES_PER_S))
        self._tokens: dict[bytes, str] = {}  # connection -> the token that it was made with
        self._gatekeeper = Gatekeeper(self._context, self.access.allows, patient=False, void=self.access.is_void)
        self._router = self._context.socket(zmq.ROUTER)
        options.apply(self._router, hwm=HWM, limit_nbytes=LIMIT_NBYTES)
        self._router.backlog = BACKLOG
        self._router.router_mandatory = True  # tell us when nobody is there, instead of dropping
        self._router.router_handover = True
        guard(self._router, keys.server_secret)
        self._closures = Disconnects()
        self._strangers = Strangers(most_strangers(raise_limit()))
        self._monitor = self._router.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        try:
            self._address = bind_endpoint(self._router, _with_port(bind, port), advertise)
        except BaseException:
            self.close()
            raise
        watched: list[Any] = [self._router, self._monitor, self._gatekeeper.socket, self._waker.fd]
        self._watch: list[tuple[Any, int]] = [(each, zmq.POLLIN) for each in watched]

    @property
    def address(self) -> str:
        return self._address

    def receive(self, timeout_s: float | None) -> list[tuple[bytes, list[bytes]]]:
        arrived: list[tuple[bytes, list[bytes]]] = []
        ready: list[tuple[Any, int]] = zmq.zmq_poll(self._watch, options.milliseconds(timeout_s))
        lost = self._watched()  # before the messages: what came by these connections is taken before their end
        if lost or any(socket is self._router for socket, _ in ready):
            self._drain(arrived)
        for descriptor in lost:
            self._closures.lost(descriptor)
        for socket, _ in ready:
            if socket is self._gatekeeper.socket:
                self._gatekeeper.serve()
            elif socket == self._waker.fd:
                self._waker.clear()
        return arrived

    def _watched(self) -> list[int]:
        """Return the descriptors of connections that were closed; note those that were made, and cut the strangers'."""
        lost: list[int] = []
        for event, descriptor in happened(self._monitor):
            if event == zmq.EVENT_ACCEPTED:
                self._strangers.accepted(descriptor)
            else:
                self._strangers.closed(descriptor)
                lost.append(descriptor)
        for descriptor in self._strangers.excess():
            cut(descriptor)
        return lost

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
        self._router.disable_monitor()
        self._monitor.close(linger=0)
        self._router.close(linger=options.milliseconds(linger_s))
        self._gatekeeper.close()
        self._context.term()
        self._waker.close()

    def take_excess(self) -> dict[bytes, int]:
        excess = dict(self._pace.excess)
        self._pace.excess.clear()
        return excess

    def take_closed(self) -> list[bytes]:
        return self._closures.take()

    def came_with(self, connection: bytes) -> str | None:
        return self._tokens.get(connection)

    def _drain(self, arrived: list[tuple[bytes, list[bytes]]]) -> None:
        now = time.monotonic()
        for _ in range(BATCH):
            try:
                connection = self._router.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            key, frames, size, descriptor = self._rest()
            self._strangers.spoke(descriptor)
            if self.access.is_owner(key):
                self.orders.append((connection, opened(frames)))
                continue
            self._remember(connection, key)
            self._closures.came(connection, descriptor)
            if size > SMALL_NBYTES or self._pace.admits(connection, now):
                arrived.append((connection, opened(frames)))

    def _rest(self) -> tuple[str, list[bytes], int, int]:
        """Read the rest of a message: return the key of its sender, its frames, their size, and the descriptor of the
        connection that it came by."""
        frames: list[bytes] = []
        more, size, key, descriptor = True, 0, "", -1
        while more:
            frame = self._router.recv(zmq.NOBLOCK, copy=False)
            if not key:
                key, descriptor = str(frame.get("User-Id")), int(frame.get(zmq.SRCFD))
            size += len(frame)
            if size <= LIMIT_NBYTES and len(frames) < MOST_FRAMES:  # else it is refused, and costs no more
                frames.append(frame.bytes)
            more = bool(frame.more)
        return key, frames or [b""], size, descriptor

    def _remember(self, connection: bytes, key: str) -> None:
        if connection in self._tokens:
            return
        name = self.access.token_name(key)
        if name is not None:
            while len(self._tokens) >= MOST_CONNECTIONS:  # anyone who holds a token can make up connections
                del self._tokens[next(iter(self._tokens))]
            self._tokens[connection] = name


def _with_port(bind: str, port: int) -> str:
    if not 0 <= port <= 65535:
        raise Misuse(f"port {port}", "0 (any free one) to 65535", "leave it out to get any free one")
    if not port:
        return bind
    return f"[{bind}]:{port}" if bind.count(":") > 1 and not bind.startswith("[") else f"{bind}:{port}"
