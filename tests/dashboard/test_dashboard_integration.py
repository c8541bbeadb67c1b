"""The dashboard beside a real supervisor, and beside a store: what it shows is the run, what it orders is done, and
nothing that is done to it holds the supervisor up."""

from __future__ import annotations

import logging
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from played import Client, until
from rich.console import Console

from taut.cli.commands.dashboard import opened, reopened, shown
from taut.cli.output.display import Display
from taut.config import resolve
from taut.core.messages import TensorSpec
from taut.dashboard.secret import SECRET_FILE, read_secret
from taut.dashboard.server import ADDRESS_FILE, listen
from taut.supervisor.service import Supervisor
from taut.testing import hostile
from taut.transport.keys import read_token_file

MODEL = [TensorSpec("w", [2], "float32", "trained")]
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    settings: dict[str, object] = {"strategy": "async", "workers": 2, "seed": 0}
    supervisor = Supervisor(settings, tmp_path / "taut-runs" / "owl", run="owl", workers=2, seed=0)
    supervisor.start()
    yield supervisor
    supervisor.stop()


class Beating:
    """Two workers, in a thread of their own: they beat whatever the test waits for."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.workers: list[hostile.HostileWorker] = []
        for rank in range(2):
            worker = hostile.HostileWorker(supervisor.address, supervisor.token, MODEL)
            self.workers.append(worker)
            worker.until(lambda worker=worker: worker.rank >= 0)  # two Hellos at once: either could be the first
            assert worker.rank == rank
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat)

    def _beat(self) -> None:
        for worker in self.workers:
            worker.join()
        while not self._over.is_set():
            for worker in self.workers:
                worker.listen(0.01)

    def __enter__(self) -> list[hostile.HostileWorker]:
        self._thread.start()
        return self.workers

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for worker in self.workers:
            worker.close()


def ranks(client: Client) -> list[int]:
    return [line["rank"] for line in client.ask("/api/workers").json["workers"] if line["state"] != "gone"]


def both_train(client: Client) -> bool:
    """One that is still joining is no other worker that goes on."""
    lines = client.ask("/api/workers").json["workers"]
    return [(line["rank"], line["state"]) for line in lines] == [(0, "training"), (1, "training")]


def client_of(url: str, folder: Path) -> Client:
    address, secret = urlsplit(url), read_secret(folder)
    assert address.hostname is not None and address.port is not None and secret is not None
    return Client(address.hostname, address.port, secret)


def test_beside_a_supervisor(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    folder, console = supervisor.run_dir, Console(record=True, width=200)
    with ExitStack() as stack:
        listening = opened(resolve({"dashboard": "0"}, environ={}, cwd=folder))
        assert listening is not None
        stack.enter_context(shown(listening, supervisor, folder, Display(console)))
        client = client_of(listening.url, folder)
        assert client.ask("/api/run").json["state"] == "waiting"
        monkeypatch.setattr(hostile.socket, "gethostname", lambda: EVIL)
        beating = Beating(supervisor)
        monkeypatch.undo()
        workers = stack.enter_context(beating)
        until(lambda: both_train(client), "both workers to be shown")
        assert {line["host"] for line in client.ask("/api/workers").json["workers"]} == {EVIL}
        wrong = client.drain(1, Authorization=f"Bearer {supervisor.token}")
        assert wrong.status == 401, "a worker's token does not steer"
        assert client.drain(1, b'{"expel": true}').json == {"said": "worker 1 was expelled"}
        until(lambda: workers[1].expelled is not None, "worker 1 to be told")
        assert workers[1].expelled == "expelled from the dashboard, by 127.0.0.1"
        until(lambda: ranks(client) == [0], "worker 1 to be shown as gone")
        assert "is gone" in client.drain(1).json["error"]
        last = client.drain(0)
        assert (last.status, "the last one" in str(last.json)) == (409, True), "as `taut drain` says it"
        _holds_nobody_up(supervisor, client, workers[0])
        said = console.export_text()
    assert listening.url in said and str(folder / SECRET_FILE) in said
    shown_somewhere = (
        said
        + caplog.text
        + "".join(
            path.read_bytes().decode("latin-1")
            for path in folder.rglob("*")
            if path.is_file() and path.name != SECRET_FILE
        )
    )
    assert client.secret not in shown_somewhere, "not on the terminal, in a log or in the store"
    assert client.secret[16:] not in shown_somewhere
    assert read_token_file(folder / SECRET_FILE) == client.secret, "it would have been found"
    assert not (folder / ADDRESS_FILE).exists()


def _holds_nobody_up(supervisor: Supervisor, client: Client, worker: hostile.HostileWorker) -> None:
    """As many connections as there may be, that say nothing and read nothing."""
    with ExitStack() as stack:
        for _ in range(80):
            raw = stack.enter_context(socket.create_connection((client.host, client.port)))
            raw.sendall(f"GET /api/stream HTTP/1.1\r\nHost: localhost:{client.port}\r\n\r\n".encode())
        before = supervisor.view().wall_s
        until(lambda: supervisor.view().wall_s > before + 0.3, "the supervisor to go on")
        assert worker.expelled is None
        assert supervisor.wait(0.0) is None


def test_a_run_in_another_process(supervisor: Supervisor, tmp_path: Path) -> None:
    """`taut dashboard`: through the store and the owner's link, with a link on the terminal that was asked for."""
    folder = supervisor.run_dir
    with ExitStack() as stack:
        stack.enter_context(Beating(supervisor))
        mine, its = pty.openpty()
        command = [sys.executable, "-m", "taut.cli.main", "dashboard", "owl", "--link"]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=its, stderr=subprocess.PIPE, text=True)
        os.close(its)
        stack.callback(process.kill)
        until((folder / ADDRESS_FILE).exists, "the server")
        with os.fdopen(mine, "rb", buffering=0) as terminal:
            link = terminal.read(500).decode().strip()
        url, _, secret = link.partition("#secret=")
        client = client_of(url, folder)
        assert client.secret == secret
        assert (folder / SECRET_FILE).stat().st_mode & 0o777 == 0o600

        until(lambda: both_train(client), "both workers to be shown")
        assert client.ask("/api/run").json["source"] == "store"
        assert client.drain(1, b'{"expel": true}').json == {"said": "worker 1 was expelled"}
        until(lambda: ranks(client) == [0], "worker 1 to be shown as gone")
        assert secret not in Path(f"/proc/{process.pid}/cmdline").read_text()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
        assert (process.returncode, secret in told) == (0, False)
    assert not (folder / ADDRESS_FILE).exists()


def test_names_of_the_server() -> None:
    with listen("127.0.0.1", 0).socket as bound:
        port = bound.getsockname()[1]
        assert port
    everywhere = listen("0.0.0.0", 0, advertise="trainer.example")
    everywhere.socket.close()
    assert not everywhere.loopback
    assert everywhere.hosts >= {"localhost", "127.0.0.1", "[::1]", "trainer.example", socket.gethostname().lower()}
    assert everywhere.url.startswith("http://trainer.example:")
    one = listen("0.0.0.0", 0, advertise="trainer.example:7000")
    one.socket.close()
    assert one.url.startswith("http://trainer.example:") and ":7000" not in one.url, "that port is the supervisor's"
    local = listen("localhost", 0)
    local.socket.close()
    assert local.loopback
    assert local.hosts == {"localhost", "127.0.0.1", "[::1]"}


def seconds_of(client: Client) -> float:
    """Return how long the curves are."""
    times = [point["time_s"] for point in client.ask("/api/points").json["points"]]
    return float(times[-1] - times[0]) if times else 0.0


def test_a_supervisor_that_returns_serves_at_the_same_address(supervisor: Supervisor) -> None:
    """A page that is open goes on: the address, the secret and the curves are those from before the death."""
    folder, settings = supervisor.run_dir, resolve({}, environ={}, cwd=supervisor.run_dir)
    terminal = Console(record=True, width=200, force_terminal=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with ExitStack() as stack:
        stack.enter_context(Beating(supervisor))
        stack.callback(terminal.file.close)
        listening = listen("127.0.0.1", 0)
        with shown(listening, supervisor, folder, Display(terminal)):
            before = client_of(listening.url, folder)
            until(lambda: both_train(before), "both workers to be shown")
            until(lambda: seconds_of(before) > 1.5, "curves that are longer than the store is behind")
            last = before.ask("/api/points").json["points"][-1]["time_s"]
            left = (folder / ADDRESS_FILE).read_text()
        assert f"{listening.url}#secret={before.secret}" in terminal.export_text(), "one click on a terminal is enough"
        assert reopened(None, settings, folder) is None, "it ended in order: nobody asked for it"
        (folder / ADDRESS_FILE).write_text(left)  # as one that is killed leaves it

        again = reopened(listen("127.0.0.1", 0), settings, folder)
        assert again is not None and again.url == listening.url
        taken = reopened(None, settings, folder)
        assert taken is None, "somebody has the port"
        with shown(again, supervisor, folder, Display(Console(record=True))):
            after = client_of(again.url, folder)
            assert after.secret == before.secret
            assert after.ask("/api/points").json["points"][0]["time_s"] <= last, "the curves begin where they began"
