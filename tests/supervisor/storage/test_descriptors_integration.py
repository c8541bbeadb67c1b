"""Strangers cannot use up the descriptors of the supervisor: a run under ``ulimit -n 1024`` ends with its model."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from clients import PATIENCE_S, Client, end_together

from taut.core.messages import Saved, Start

LIMIT, STRANGERS = 1024, 2000
SUPERVISOR = Path(__file__).parents[1] / "limited_supervisor.py"


@contextmanager
def strangers(address: str, number: int) -> Iterator[list[socket.socket]]:
    """So many connections that say nothing."""
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    opened = []
    try:
        for _ in range(number):
            one = socket.socket()
            opened.append(one)
            one.setblocking(False)
            one.connect_ex((host, int(port)))
        yield opened
    finally:
        for one in opened:
            one.close()


@pytest.fixture(autouse=True)
def _enough_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * STRANGERS:
        pytest.skip(f"{hard} descriptors are too few for {STRANGERS} strangers")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * STRANGERS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_a_run_ends_in_seconds_though_strangers_hold_what_they_can(tmp_path: Path) -> None:
    command = [sys.executable, str(SUPERVISOR), str(tmp_path / "run"), str(LIMIT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address, token = process.stdout.readline().split()
            client = Client(address, token, 11)
            client.become_ready()
            client.hear(Start)
            with strangers(address, STRANGERS):
                deadline = time.monotonic() + PATIENCE_S
                while open_descriptors(process.pid) < LIMIT // 8:
                    assert time.monotonic() < deadline, "the strangers do not come"
                    client.receive()
                newcomer = Client(address, token, 12)
                newcomer.become_ready()
                newcomer.hear(Start)
                process.stdin.write("drain\n")
                process.stdin.flush()
                end_together(client, newcomer)
                saved = client.hear(Saved)
                assert open_descriptors(process.pid) < LIMIT, "some are left for those who are known"
            assert saved.error == ""
            assert process.stdout.readline().split()[0] == "finished"
            process.stdin.write("stop\n")
            process.stdin.flush()
            assert process.wait(PATIENCE_S) == 0
            client.transport.close()
            newcomer.transport.close()
        finally:
            process.kill()
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert (tmp_path / "run" / "model.pt").exists()
