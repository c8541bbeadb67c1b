"""What anybody may cost: connections, streams, slow and stuck clients. The supervisor's loop notices none of it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from played import PATIENCE_S, Client, Played, row, served, until, view

from taut.dashboard.limits import Limits
from taut.dashboard.records import StreamMessage
from taut.errors import Misuse


class Raw:
    """A connection, byte by byte. Closing it closes it for good, what is being read of it too."""

    def __init__(self, client: Client, sent: bytes = b"", receive_nbytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_nbytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_nbytes)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect((client.host, client.port))
        self.socket.sendall(sent)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def looks(self) -> Iterator[Any]:
        """The messages of a stream, as they come."""
        for line in self.file:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def accepted(self) -> bool:
        return b" 200 " in self.file.readline()

    def ended(self) -> bool:
        """Whether the server closes the connection, whatever it says before."""
        try:
            while self.file.read(4096):
                pass
        except ConnectionError:
            pass
        return True


def request(client: Client, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost:{client.port}\r\n\r\n".encode()


def test_a_stream_tells_what_is_new(tmp_path: Path) -> None:
    source = Played(view(row(0), events=3, wall_s=0.0))
    with served(source, tmp_path) as client, Raw(client, request(client, "/api/stream?after=1")) as raw:
        told = raw.looks()
        first = next(told)
        assert set(first) == set(StreamMessage.__struct_fields__)
        assert ([event["number"] for event in first["events"]["events"]], first["fresh"]) == ([2, 3], True)
        source.view = view(row(0, samples=1000), row(1), events=5, wall_s=2.0)
        later = next(look for look in told if look["events"]["events"])
        assert [event["number"] for event in later["events"]["events"]] == [4, 5]
        assert later["workers"]["total"] == 2
        assert not later["fresh"]
        seen = [later, next(told), next(told)]
        assert len([point for look in seen for point in look["points"]]) == 1, "each point once"
        source.view = view(row(0), state="finished", events=5, wall_s=9.0)
        last = next(look for look in told if look["run"]["state"] == "finished")
        assert last["points"] == []


def test_whoever_watches_sees_the_end(tmp_path: Path) -> None:
    """The server stops in a moment although somebody watches, and the last word is the run's."""
    source = Played(view(row(0)))
    with ExitStack() as stack:
        client = stack.enter_context(served(source, tmp_path, every_s=60.0))
        raw = Raw(client, request(client, "/api/stream"))
        told = raw.looks()
        assert next(told)["run"]["state"] == "training"
        source.view = view(row(0), state="finished")
        stack.close()
        assert [look["run"]["state"] for look in told] == ["finished"]
        raw.close()
    assert not (tmp_path / "dashboard.json").exists()


def test_connections_are_bounded(tmp_path: Path) -> None:
    """A thousand idle connections would use up the process's file descriptors, which the supervisor needs."""
    with served(Played(view(row(0))), tmp_path, limits=Limits(connections=4)) as client, ExitStack() as stack:
        idle = [stack.enter_context(Raw(client)) for _ in range(4)]
        for _ in range(20):
            with Raw(client) as one_more:
                assert one_more.ended()
        idle[0].close()
        until(lambda: _heard(client), "room for another")
        idle[1].socket.sendall(request(client, "/api/run"))
        assert idle[1].accepted(), "those that were there are served"


def _heard(client: Client) -> bool:
    try:
        return client.ask("/api/run").status == 200
    except OSError:
        return False


@pytest.mark.parametrize("begun", ["", "GET /api/run HTTP/1.1\r\nHost: ", "POST /api/workers/0/drain HTTP/1.1\r\n"])
def test_a_request_that_does_not_come_is_not_waited_for(
    tmp_path: Path, begun: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served(Played(view(row(0))), tmp_path, limits=Limits(request_s=0.05)) as client:
        if begun.startswith("POST"):  # all but the end of its body
            begun += f"Host: localhost\r\nAuthorization: Bearer {client.secret}\r\n"
            begun += "Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        with Raw(client, begun.encode()) as slow:
            assert slow.ended()
        until(lambda: _heard(client), "a request that comes in time")
    assert caplog.text == "", "strangers write nothing into the log"


def test_streams_are_bounded(tmp_path: Path) -> None:
    with served(Played(view(row(0))), tmp_path, limits=Limits(streams=2)) as client, ExitStack() as stack:
        streams = [stack.enter_context(Raw(client, request(client, "/api/stream"))) for _ in range(2)]
        for stream in streams:
            next(stream.looks())
        answer = client.ask("/api/stream")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert client.ask("/api/run").status == 200
        streams[0].close()

        until(lambda: _free(client), "a connection to become free")


def test_a_client_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    """It is cut off; those who read get every look meanwhile."""
    limits = Limits(stuck_s=1.0, streams=2, send_nbytes=16 * 1024)  # a busy machine may stop a reader for a moment
    source = Played(view(*(row(rank, "x" * 500) for rank in range(60))))
    with served(source, tmp_path, limits=limits) as client:
        path = request(client, "/api/stream")
        with Raw(client, path, receive_nbytes=4096) as stuck, Raw(client, request(client, "/api/stream")) as reading:
            told = reading.looks()
            next(told)
            assert stuck.socket.recv(1, socket.MSG_PEEK), "both connections were taken"
            until(lambda: next(told) is not None and _free(client), "the stuck one to be cut off")
            looked = source.looks
            for _ in range(3):
                next(told)
            assert source.looks > looked


def _free(client: Client) -> bool:
    with Raw(client, request(client, "/api/stream")) as raw:
        return raw.accepted()


def test_an_order_that_takes_long_holds_nobody_up(tmp_path: Path) -> None:
    """Orders wait for the supervisor's answer, in threads: few, and the page goes on."""
    gate, begun = threading.Event(), threading.Semaphore(0)

    def wait() -> None:
        begun.release()
        assert gate.wait(PATIENCE_S)

    source = Played(view(row(0)), asked=wait)
    with served(source, tmp_path, limits=Limits(orders=1)) as client:
        answers: list[int] = []
        first = threading.Thread(target=lambda: answers.append(client.drain(0).status))
        first.start()
        assert begun.acquire(timeout=PATIENCE_S)
        assert client.drain(0).status == 503
        assert client.ask("/api/run").status == 200
        gate.set()
        first.join(PATIENCE_S)
        assert answers == [200]


def test_a_run_that_cannot_be_looked_at_is_asked_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = Played(view(row(0)))
    with served(source, tmp_path) as client:
        source.fails = Misuse("the store", "readable")
        looked = source.looks
        until(lambda: source.looks > looked + 3, "looks")
        assert client.ask("/api/run").json["run"] == "quiet-otter", "what was seen last"
        source.fails, source.view = None, view(row(0), wall_s=77.0)
        until(lambda: client.ask("/api/run").json["wall_s"] == 77.0, "the next look")
    assert "could not be looked at" in caplog.text


def test_a_bug_is_an_answer_and_tells_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise ZeroDivisionError("inside")

    with served(Played(view(row(0)), asked=broken), tmp_path) as client:
        answer = client.drain(0)
        assert (answer.status, answer.json["error"]) == (500, "the dashboard failed")
        assert b"inside" not in answer.body
        assert client.ask("/api/run").status == 200
    assert "ZeroDivisionError" in caplog.text
