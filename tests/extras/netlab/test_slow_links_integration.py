"""Whole runs over slow links, `make test-netlab`: nobody is given up because of an upload, and the model is saved.

Two workers at 1 and 1.5 Mbit/s were "silent for 4.8 s" while the final model went the same way as their heartbeats; they
were given up, and the model was lost.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import PATIENCE_S, Command
from lab import WHY_NOT, address, break_connections, bytes_sent, cable, hosts, on
from safetensors.torch import load_file

pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT), pytest.mark.timeout(2 * PATIENCE_S)]
JOB = str(Path(__file__).parent / "slow_job.py")
RUNS = {"256kbit": (256e3, 60_000), "1mbit": (1e6, 300_000)}  # bits per second, and parameters


class Run:
    """A supervisor on host 1 and a worker on each of hosts 2 and 3."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path, strategy: str, parameters: int) -> None:
        self.folder, self.nbytes = folder / "taut-runs" / "slow", 4 * parameters
        words = ["--workers", "2", "--bind", address(1), "--port", "7001", "--name", "slow", "--strategy", strategy]
        self.supervisor = stack.enter_context(Command(folder, "supervisor", *words, before=on(1)))
        self.supervisor.until("on every machine")
        join = ["--join", f"{address(1)}:7001", "--token-file", str(self.folder / "token")]
        self.workers = [
            stack.enter_context(
                Command(folder, "worker", *join, "--bind", address(host), JOB, str(parameters), before=on(host))
            )
            for host in (2, 3)
        ]
        self.commands = [self.supervisor, *self.workers]

    def events(self) -> dict[str, list[str]]:
        """Return what the supervisor has noted down, by kind."""
        found: dict[str, list[str]] = {}
        with contextlib.closing(sqlite3.connect(self.folder / "run.sqlite")) as store:
            for kind, text in store.execute("SELECT kind, text FROM event"):
                found.setdefault(kind, []).append(text)
        return found

    def until(self, kind: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.events().get(kind):
            assert time.monotonic() < deadline, f"no {kind}: {self.said()}"
            assert all(one.process.poll() is None for one in self.commands), self.said()
            time.sleep(0.1)

    def said(self) -> str:
        return "\n".join(line for one in self.commands for line in one.said)

    def delivered_s(self) -> float:
        (text,) = self.events()["model"]
        found = re.search(r" in ([0-9.]+) s", text)
        assert found is not None, text
        return float(found[1])

    def check(self) -> None:
        """All have ended well, nobody was given up, and the model is whole."""
        codes = [one.end() for one in (*self.workers, self.supervisor)]
        assert codes == [0, 0, 0], self.said()
        assert not {"gone", "writer", "back"} & self.events().keys(), self.events()
        assert sum(4 * tensor.numel() for tensor in load_file(self.folder / "model.safetensors").values()) == self.nbytes


@contextlib.contextmanager
def run(folder: Path, rate: str, strategy: str) -> Iterator[Run]:
    with hosts(3, rate), contextlib.ExitStack() as stack:
        yield Run(stack, folder, strategy, RUNS[rate][1])


@pytest.mark.parametrize("rate", RUNS)
@pytest.mark.parametrize("strategy", ["async", "dpsgd"])
def test_a_run_over_a_slow_link_ends_with_a_model(tmp_path: Path, rate: str, strategy: str) -> None:
    """Alone on its link: no update is under way still, since none was sent twice."""
    with run(tmp_path, rate, strategy) as made:
        made.check()
        least_s = 8 * made.nbytes / RUNS[rate][0]
        assert made.delivered_s() < 1.7 * least_s + 1.5


def test_an_upload_that_is_cut_off_goes_on_where_it_was(tmp_path: Path) -> None:
    with run(tmp_path, "256kbit", "async") as made:
        made.until("verdict")
        before = [bytes_sent(host) for host in (2, 3)]

        def sent() -> list[int]:
            return [bytes_sent(host) - former for host, former in zip((2, 3), before, strict=True)]

        made.supervisor.when(lambda: max(sent()) > 0.6 * made.nbytes, "most of the upload")
        break_connections(2, to=1)
        break_connections(3, to=1)
        made.check()
        assert max(sent()) < 1.45 * made.nbytes, "else it began anew"


def test_an_upload_goes_on_when_the_cable_was_pulled_out_for_a_while(tmp_path: Path) -> None:
    with run(tmp_path, "256kbit", "async") as made:
        made.until("verdict")
        for host in (2, 3):
            cable(host, "down")
        began_s = time.monotonic()
        made.supervisor.when(lambda: time.monotonic() > began_s + 2.0, "two seconds")
        for host in (2, 3):
            cable(host, "up")
        made.check()
