"""A cable is unplugged in mid-run and plugged in again: real namespaces, real TCP. Needs root and the network lab."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from forked_zygotes import taut_command

from taut.supervisor.storage.store_reader import StoredRun, load_run

JOB = Path(__file__).with_name("job.py")
LAB = Path(os.environ.get("TAUT_NETLAB", Path(__file__).resolve().parents[3] / "shared/netlab/netlab.sh"))
PATIENCE_S = 90.0
PAUSE = threading.Event()  # never set: between two looks at what other processes have done


def why_not() -> str:
    """Why it cannot be run here; empty if it can."""
    if not LAB.is_file():
        return f"no network lab at {LAB} (TAUT_NETLAB names one)"
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    return "" if shutil.which("ip") and shutil.which("tc") else "needs iproute2"


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can be run")


def lab(*words: str) -> None:
    subprocess.run([str(LAB), *words], check=True, env={**os.environ, "NETLAB": "tautt"}, timeout=60)


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        PAUSE.wait(0.05)


@pytest.fixture
def on_host(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    lab("up", "3", "100mbit")
    with ExitStack() as stack:
        stack.callback(lambda: lab("down"))

        def start(host: int, log: str, *words: str) -> subprocess.Popen[bytes]:
            out = stack.enter_context((tmp_path / log).open("wb"))
            command = [str(LAB), "exec", str(host), *taut_command(), *words]
            environment = {**os.environ, "NETLAB": "tautt", "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out, env=environment)

            def stop() -> None:
                process.kill()
                process.wait()

            stack.callback(stop)
            return process

        yield start


@pytest.mark.long
def test_a_cable_that_is_unplugged_and_plugged_in_again(
    tmp_path: Path, on_host: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The others go on meanwhile, what was missed is sent again, and replicas are equal by hash. The second time it takes
    so long that the worker is given up; it is back when the cable is, with all that it did."""
    gate = tmp_path / "gate"
    bind = ["--bind", "10.77.0.1", "--json"]
    supervisor = on_host(1, "supervisor.log", "supervisor", "--workers", "3", "--name", "run", *bind)
    until(lambda: "on every machine" in (tmp_path / "supervisor.log").read_text(), "the supervisor")
    address = next(word for word in (tmp_path / "supervisor.log").read_text().split() if word.startswith("tcp://"))

    def record() -> StoredRun:
        return load_run(tmp_path / "taut-runs", "run")

    workers, pids = [], {}
    for host in (1, 2, 3):
        words = ["--join", address, "--token-file", "taut-runs/run/token", "--bind", f"10.77.0.{host}"]
        workers.append(on_host(host, f"{host}.log", "worker", *words, str(JOB), "--gate", str(gate), "--pace", "0.01"))
        until(lambda: len(record().workers) == len(workers), "the worker")
        pids[host] = record().workers[-1].pid

    def steps(host: int) -> int:
        latest = record().latest()
        return sum(latest[rank].steps for rank in ranks(host) if rank in latest)

    def ranks(host: int) -> list[int]:
        return [worker.rank for worker in record().workers if worker.pid == pids[host]]

    until(lambda: all(steps(host) > 50 for host in (1, 2, 3)), "steps")
    lab("cut", "3")
    before = {host: steps(host) for host in (1, 2)}
    until(lambda: all(steps(host) > before[host] + 200 for host in (1, 2)), "the others to go on")
    lab("heal", "3")
    after = steps(3)
    until(lambda: steps(3) > after + 50, "the third to be heard again")
    lab("cut", "3")
    until(lambda: any(event.kind == "gone" for event in record().events), "the third to be given up")
    lab("heal", "3")
    until(lambda: len(ranks(3)) == 2, "the third to be back")
    after = steps(3)
    until(lambda: steps(3) > after + 50, "the third to train again")
    gate.touch()
    assert supervisor.wait(PATIENCE_S) == 0, (tmp_path / "supervisor.log").read_text()
    assert [worker.wait(PATIENCE_S) for worker in workers] == [0, 0, 0]
    outcome = record().outcome
    assert outcome is not None
    assert outcome["identical"]
    assert outcome["samples_undone"] == 0
