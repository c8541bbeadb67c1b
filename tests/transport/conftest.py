"""A TCP proxy that records what passes and can break connections, and helpers that wait for conditions."""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from taut.core.messages import Member
from taut.transport.keys import WorkerKeys
from taut.transport.zmq.transport import ZmqTransport

settings.register_profile("communication", deadline=None)  # the cores are shared
settings.load_profile("communication")


class Proxy:
    """Forwards every connection to ``upstream`` (``tcp://host:port``, may be set later) and keeps a copy."""

    def __init__(self) -> None:
        self.upstream, self.recorded, self.connections = "", bytearray(), 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: dict[socket.socket, socket.socket] = {}
        self._orders: list[str] = []
        self._reader, self._writer = socket.socketpair()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def cut(self) -> None:
        """Close every connection that is open now."""
        self._order("cut")

    def close(self) -> None:
        self._order("stop")
        self._thread.join()
        for end in (self._listener, self._reader, self._writer):
            end.close()

    def _order(self, order: str) -> None:
        self._orders.append(order)
        self._writer.send(b"\0")

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._reader, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._listener:
                        self._accept(selector)
                    elif key.fileobj is self._reader:
                        self._reader.recv(1)
                        for end in list(self._ends):
                            self._drop(selector, end)
                        if self._orders.pop(0) == "stop":
                            return
                    elif key.fileobj in self._ends:
                        self._forward(selector, key.fileobj)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        client, _ = self._listener.accept()
        host, port = self.upstream.removeprefix("tcp://").split(":")
        try:
            server = socket.create_connection((host, int(port)))
        except OSError:
            client.close()
            return
        self.connections += 1
        self._ends |= {client: server, server: client}
        selector.register(client, selectors.EVENT_READ)
        selector.register(server, selectors.EVENT_READ)

    def _forward(self, selector: selectors.BaseSelector, end: socket.socket) -> None:
        try:
            data = end.recv(65536)
            self.recorded += data
            self._ends[end].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(selector, end)

    def _drop(self, selector: selectors.BaseSelector, end: socket.socket) -> None:
        if end in self._ends:
            for half in (end, self._ends.pop(end)):
                self._ends.pop(half, None)
                selector.unregister(half)
                half.close()


class Party:
    """Workers of a test: ``party.worker(0)`` makes a transport and its member record; all are closed at the
    end."""

    def __init__(self) -> None:
        self.keys: dict[int, WorkerKeys] = {}
        self.members: dict[int, Member] = {}
        self.closing: list[Callable[[], None]] = []

    def worker(self, rank: int, **options: object) -> ZmqTransport:
        self.keys[rank] = WorkerKeys.generate()
        transport = self.keep(ZmqTransport(self.keys[rank], **options))
        self.members[rank] = Member(rank, transport.address, self.keys[rank].public_key)
        return transport

    def keep(self, thing):
        """Close ``thing`` at the end of the test."""
        self.closing.append(thing.close)
        return thing


@pytest.fixture
def party() -> Iterator[Party]:
    party = Party()
    yield party
    for close in reversed(party.closing):
        close()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


def until(step: Callable[[], object], deadline_s: float = 20.0) -> object:
    """Repeat ``step`` (which waits a little itself) until it returns something true."""
    end = time.monotonic() + deadline_s
    while not (result := step()):
        assert time.monotonic() < end, "it did not come to pass"
    return result


@pytest.fixture(name="until")
def _until() -> Callable[..., object]:
    return until
