"""A run that is played to the dashboard, and a client that can say anything."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from taut.core.messages import Statistics
from taut.dashboard.limits import Limits
from taut.dashboard.records import About
from taut.dashboard.secret import new_secret, read_secret
from taut.dashboard.server import Dashboard, listen
from taut.dashboard.view_model import Seen, from_view
from taut.errors import Misuse
from taut.supervisor.control import Dismiss, Order
from taut.supervisor.view import ClusterView, Event, WorkerRow

SETTINGS = {"strategy": "async", "topology": "complete", "codec": "tether"}
PATIENCE_S = 20.0


def row(rank: int, host: str = "host", state: Any = "training", reason: str = "", **known: Any) -> WorkerRow:
    statistics = Statistics(**{"steps": 10, "samples": 640, "loss": 0.5, "wall_s": 2.0, **known})
    return WorkerRow(rank, host, 100 + rank, state, statistics, 0.1, reason)


def view(
    *rows: WorkerRow, wall_s: float = 3.0, state: Any = "training", events: int = 2, text: str = "it did"
) -> ClusterView:
    told = tuple(Event(number, float(number), "joined", text) for number in range(1, events + 1))
    return ClusterView("quiet-otter", state, 0, rows, 0.01, 1, 50, 100, told, wall_s, wall_s)


@dataclass
class Played:
    """A source whose view the test sets. Orders are written down; worker 9 is refused."""

    view: ClusterView
    secret_for_all: bool = False
    orders: list[Order] = field(default_factory=list)
    looks: int = 0
    fails: Exception | None = None
    asked: Callable[[], None] = lambda: None

    def look(self) -> Seen:
        self.looks += 1
        if self.fails is not None:
            raise self.fails
        return from_view(self.view, SETTINGS, None, self.secret_for_all)

    def about(self) -> About:
        return About("taut run train.py", dict(SETTINGS), {"taut": "0.1.0"}, "taut-runs/quiet-otter", (("model.pt", 7),))

    run_dir: Path = Path("no-runs/quiet-otter")

    def obeyed(self, given: Order) -> str:
        self.asked()
        if isinstance(given, Dismiss) and given.rank == 9:
            raise Misuse("worker 9", "a worker of this run: 0, 1", "see `taut show`")
        self.orders.append(given)
        return f"worker {given.rank} is told to go" if isinstance(given, Dismiss) else "it is done"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Plain HTTP, with whatever headers: a browser would not send some of these, an attacker does."""

    host: str
    port: int
    secret: str

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, source: str | None = None, **headers: str
    ) -> Answer:
        return self.send(path, method, {name.replace("_", "-"): value for name, value in headers.items()}, body, source)

    def send(
        self, path: str, method: str, headers: Mapping[str, str], body: bytes | None = None, source: str | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection(
            self.host, self.port, timeout=PATIENCE_S, source_address=None if source is None else (source, 0)
        )
        try:
            given = {"Host": f"{self.host}:{self.port}", **headers}
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                connection.putheader(name, value)
            if body is not None and "Transfer-Encoding" not in given:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def drain(self, rank: object = 1, body: bytes = b"{}", **headers: str) -> Answer:
        return self.order(f"/api/workers/{rank}/drain", body, **headers)

    def order(self, path: str, body: bytes = b"{}", **headers: str) -> Answer:
        """As the page asks for it; ``headers`` replace its own, an empty one is left out."""
        own = {"Content-Type": "application/json", **self.bearer, "Sec-Fetch-Site": "same-origin"}
        own["Origin"] = f"http://{self.host}:{self.port}"
        own |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send(path, "POST", {name: value for name, value in own.items() if value}, body)


@contextmanager
def served(
    source: Any,
    folder: Path,
    *,
    bind: str = "127.0.0.1",
    limits: Limits | None = None,
    every_s: float = 0.02,
    **more: Any,
) -> Iterator[Client]:
    """A real server on a free port."""
    limits = limits or Limits()
    new_secret(folder)
    listening = listen(bind, 0, send_nbytes=limits.send_nbytes)
    with Dashboard(listening, source, folder, limits=limits, every_s=every_s, **more) as dashboard:
        port = urlsplit(dashboard.url).port
        assert port is not None
        secret = read_secret(folder)
        assert secret is not None
        yield Client("127.0.0.1", port, secret)


def until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        threading.Event().wait(0.005)
