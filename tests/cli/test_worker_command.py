"""`taut worker` before it joins: what answers at the address, and what is said of it."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import zmq
from rich.console import Console

from taut.cli.commands import worker as command
from taut.cli.commands.worker import await_supervisor, unanswered
from taut.errors import SupervisorLost


@contextmanager
def listening(says: bytes) -> Iterator[str]:
    """A server that greets one connection with ``says``; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection, suppress(ConnectionResetError):
                connection.sendall(says)
                connection.recv(1)  # until the other end closes

        thread = threading.Thread(target=greet)
        thread.start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_socket_of_zeromq_answers_as_a_supervisor_does() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as server:
        assert unanswered(f"tcp://127.0.0.1:{server.bind_to_random_port('tcp://127.0.0.1')}") is None


def test_another_server_is_told_apart() -> None:
    with listening(b"HTTP/1.1 400 Bad Request\r\n") as address:
        assert unanswered(address) == "something else than a supervisor listens there"


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "TOLD_S", 0.05)
    with listening(b"") as address:
        assert unanswered(address) == "nothing came back for 0 s"


def test_it_is_told_once_tried_again_and_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr(command.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(command.time, "sleep", waits.append)
    monkeypatch.setattr(command, "unanswered", lambda address: "connection refused")
    console = Console(file=io.StringIO(), width=300)
    with pytest.raises(SupervisorLost, match=r"no supervisor at tcp://10\.0\.0\.7:1 for 60 s: connection refused"):
        await_supervisor("tcp://10.0.0.7:1", console)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert said.count("no supervisor answers at tcp://10.0.0.7:1: connection refused") == 1
    assert len(waits) > 20
