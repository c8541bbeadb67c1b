"""The supervisor is killed with -9 in mid-run and comes back, here or elsewhere: the run goes on and ends as if nothing
had happened. Real processes, real sockets, real SQLite."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from forked_zygotes import ForkedEngine, taut_command

from taut.config import WorkerEnvironment
from taut.engines.local import Exit
from taut.supervisor.storage.previous_run import read_previous_run
from taut.supervisor.storage.snapshot import SupervisorSnapshot
from taut.supervisor.storage.store_reader import load_run

JOB = Path(__file__).with_name("job.py")
PATIENCE_S = 60.0
PAUSE = threading.Event()  # never set: between two looks at what another process has done


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        PAUSE.wait(0.02)


def passes(trail: Path) -> list[int]:
    """How many each worker has come through."""
    return [len(path.read_text().splitlines()) for path in sorted(trail.iterdir())]


def passes_ahead(run_dir: Path) -> int:
    """Of how many passes something is set aside, for each of the two workers, as far as is written down."""
    kept = msgspec.msgpack.decode(read_previous_run(run_dir).data, type=SupervisorSnapshot).leases.reserved
    return min(len({span[0] for span in kept.get(rank, [])}) for rank in (0, 1))


@pytest.fixture
def processes() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    with ExitStack() as stack:

        def start(folder: Path, log: str, *words: str) -> subprocess.Popen[bytes]:
            out = stack.enter_context((folder / log).open("wb"))
            command = [*taut_command(), *words]
            process = subprocess.Popen(
                command, cwd=folder, stdout=out, stderr=out, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )

            def stop() -> None:
                process.kill()
                process.wait()

            stack.callback(stop)
            return process

        yield start


@pytest.mark.parametrize(
    "way", ["same", *(pytest.param(way, marks=pytest.mark.long) for way in ("elsewhere", "standby"))]
)
def test_a_killed_supervisor_comes_back(
    tmp_path: Path, processes: Callable[..., subprocess.Popen[bytes]], way: str, request: pytest.FixtureRequest
) -> None:
    log, gate = tmp_path / "first.log", tmp_path / "gate"
    first = processes(tmp_path, "first.log", "supervisor", "--workers", "2", "--name", "run", "--bind", "127.0.0.1")
    until(lambda: "on every machine" in log.read_text(), "the supervisor")
    address = next(word for word in log.read_text().split() if word.startswith("tcp://"))
    trail = tmp_path / "trail"
    trail.mkdir()
    script = [str(JOB), "--gate", str(gate), "--trail", str(trail), "--samples", "6000", "--pace", "0"]  # pass by pass
    run = WorkerEnvironment(address, token_file=str(tmp_path / "taut-runs/run/token")).variables()
    workers = ForkedEngine(script[0], script[1:], 2, run, log_dir=tmp_path)
    request.addfinalizer(workers.close)
    workers.start()
    until(lambda: "start:" in log.read_text(), "the start")
    until(lambda: passes_ahead(tmp_path / "taut-runs" / "run") > 4, "what is set aside")
    if way == "standby":
        second = processes(tmp_path, "second.log", "supervisor", "--standby", "run", "--json")
        until(lambda: "standing by" in (tmp_path / "second.log").read_text(), "the standby")
    first.send_signal(signal.SIGUSR1)  # SIGKILL for a forked command
    first.wait()
    if way == "same":  # nobody deals, and nobody says that a pass is over: they go on with what was set aside
        until(lambda: len(passes(trail)) == 2, "a pass of each")
        before = passes(trail)
        until(lambda: all(now > then + 1 for now, then in zip(passes(trail), before, strict=True)), "passes without it")
    if way != "standby":
        elsewhere = ["--port", "0"] if way == "elsewhere" else []
        second = processes(tmp_path, "second.log", "supervisor", "--recover", "run", "--json", *elsewhere)
    until(lambda: any(e.kind == "recovered" for e in load_run(tmp_path / "taut-runs", "run").events), "the recovery")
    gate.touch()
    assert second.wait(PATIENCE_S) == 0, (tmp_path / "second.log").read_text()
    ended: list[Exit] = []
    until(lambda: (ended.extend(workers.poll()), len(ended) == 2)[1], "the workers' end")
    assert [each.code for each in ended] == [0, 0]
    said = (tmp_path / "second.log").read_text()
    outcome = json.loads(said[said.index("{") :])
    assert outcome["replicas_identical"]
    record = load_run(tmp_path / "taut-runs", "run")
    assert record.outcome is not None
    assert record.outcome["samples_undone"] == 0
    assert record.outcome["samples_again"] == 0  # both workers lived: nothing that was finished was dealt twice
    assert [worker.rank for worker in record.workers] == [0, 1]
