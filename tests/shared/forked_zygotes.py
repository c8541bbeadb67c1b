"""Zygotes that are forked from one process, which has imported torch once for all tests of a session.

A zygote (``taut.engines.zygote``) spends seconds on its imports, and each test with real workers starts one or more. Here
it is a fork of a server that has made these imports; from then on it is the same: it reads its plan, forks the workers,
reaps them, and ends them when the launcher dies. In the tests' own process, ``LocalCluster`` starts such zygotes; in a
process of its own, ``taut_command()`` is the command line that does. The tests of the engine start real ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from typing import BinaryIO

from taut.engines.local import LocalEngine

VARIABLE = "FORKED_ZYGOTES"  # where the server listens, for the processes that tests start
_PREPARE = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import forked_zygotes; del sys.path[0]"


class ForkedEngine(LocalEngine):
    """``LocalEngine`` with a forked zygote."""

    def _launch(self, own_log: BinaryIO) -> subprocess.Popen[str]:
        return ForkedZygote(self._environment, own_log)  # type: ignore[return-value]


class ForkedZygote:
    """The part of ``subprocess.Popen`` that ``LocalEngine`` uses."""

    def __init__(self, environment: dict[str, str], log: BinaryIO) -> None:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(server_address())
            socket.send_fds(server, [b"?"], [theirs_in, theirs_out, log.fileno()])
            _, (self._ended,), _, _ = socket.recv_fds(server, 1, 1)
        os.close(theirs_in)
        os.close(theirs_out)
        self.stdin, self.stdout = os.fdopen(ours_in, "w"), os.fdopen(ours_out)
        self.stdin.write(json.dumps({"environment": environment, "folder": os.getcwd()}) + "\n")

    def poll(self) -> int | None:
        return 0 if select.select([self._ended], [], [], 0)[0] else None

    def wait(self, timeout: float | None = None) -> int:
        if not select.select([self._ended], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("zygote", timeout or 0.0)
        return 0

    def kill(self) -> None:
        signal.pidfd_send_signal(self._ended, signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self._ended)


def taut_command(program: str = "from taut.cli.main import main; main()") -> list[str]:
    """Return the words that start the command line, or ``program``, with zygotes that are forked."""
    server_address()
    engine = "forked_zygotes.LocalEngine._launch = forked_zygotes.ForkedEngine._launch"
    return [sys.executable, "-c", f"{_PREPARE}; {engine}\n{program}"]


_servers: list[subprocess.Popen[bytes]] = []


def server_address() -> str:
    """Return where the server listens; start it where there is none. It ends with the process that started it."""
    if VARIABLE not in os.environ:
        address = os.path.join(tempfile.mkdtemp(), "zygotes")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            command = [sys.executable, "-c", f"{_PREPARE}; forked_zygotes.serve({listener.fileno()})"]
            limits = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # as LocalEngine has them
            _servers.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()], env={**os.environ, **limits}
                )
            )
        os.environ[VARIABLE] = address
    return os.environ[VARIABLE]


def close() -> None:
    """End the server, if this process has one."""
    for server in _servers:
        server.communicate()
        address = os.environ.pop(VARIABLE)
        os.unlink(address)
        os.rmdir(os.path.dirname(address))
    _servers.clear()


# ------------------------------------------------------------------------------------------------ in the server


def serve(descriptor: int) -> None:
    """Import what zygotes need, then fork one for each request, until the process that started the server is gone."""
    import gc
    import importlib

    from taut.codecs.registry import kernels_of
    from taut.engines.kernels import prepare_kernels
    from taut.engines.zygote import PRELOADED

    gc.disable()
    for name in PRELOADED:
        importlib.import_module(name)
    prepare_kernels(kernels_of(["tether"]), lambda done, wanted: None)  # the codec of most tests
    sys.path.remove("")  # as a zygote does
    listener = socket.socket(fileno=descriptor)
    forked: dict[int, int] = {}  # pidfd -> pid
    while sys.stdin not in (ready := select.select([listener, sys.stdin, *forked], [], [])[0]):
        for ended in set(ready) & set(forked):
            os.waitpid(forked.pop(ended), 0)
            os.close(ended)
        if listener in ready:
            _fork(listener, forked)


def _fork(listener: socket.socket, forked: dict[int, int]) -> None:
    launcher, _ = listener.accept()
    with launcher:
        _, files, _, _ = socket.recv_fds(launcher, 1, 3)
        if not (pid := os.fork()):
            for descriptor in forked:
                os.close(descriptor)
            launcher.close()
            listener.close()
            _become_zygote(files)
        told = os.pidfd_open(pid)
        forked[told] = pid
        with contextlib.suppress(OSError):  # the launcher is gone, and the zygote sees it, too
            socket.send_fds(launcher, [b"!"], [told])
    for file in files:
        os.close(file)


def _become_zygote(files: list[int]) -> None:
    from taut.engines.zygote import main

    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    told = json.loads(sys.stdin.buffer.readline())
    os.environ.clear()
    os.environ.update(told["environment"])
    os.chdir(told["folder"])
    main()
    os._exit(0)
