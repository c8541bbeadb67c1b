"""Zygotes that are forked from one process, which has imported torch once for all engines of a run on this machine.

Several local engines of one run, such as those of Ray's actors, would each start a zygote that imports torch. Here the
first of them starts a server, in a folder that only this user can enter; each engine then gets a fork of it, which goes
on as a zygote: it reads its plan, forks the workers, and ends them when its engine is gone. The server ends when the last
zygote has. An engine sends three descriptors (standard input, output and error of its zygote) over a Unix socket, which
stays open as long as the zygote runs; a byte on it kills the zygote.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from typing import BinaryIO, NoReturn

from taut.engines.zygote import main as be_zygote
from taut.engines.zygote import preload

SOCKET = "zygotes"
FOUND_S = 5.0  # for the engine that was first to have bound the socket, which takes it milliseconds
IDLE_S = 1.0  # without a zygote, until the server ends

_FRESH = "import sys; sys.path.pop(0); from taut.engines.fork_server import become_zygote; become_zygote([])"
_SERVER = "import sys; sys.path.pop(0); from taut.engines.fork_server import main; main()"


class ForkedZygote:
    """A zygote that a server at ``address`` forks, as far as ``LocalEngine`` uses a ``subprocess.Popen``."""

    def __init__(self, address: str, environment: Mapping[str, str], log: BinaryIO) -> None:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        self._server = socket.socket(socket.AF_UNIX)
        self.stdin, self.stdout = os.fdopen(ours_in, "w"), os.fdopen(ours_out)
        try:
            self._server.connect(address)
            socket.send_fds(self._server, [b"?"], [theirs_in, theirs_out, log.fileno()])
            self.stdin.write(json.dumps({"environment": dict(environment), "folder": os.getcwd()}) + "\n")
        except BaseException:
            self._server.close()
            self.stdin.close()
            self.stdout.close()
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    def poll(self) -> int | None:
        return 0 if self._ended(0.0) else None

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended(timeout):
            raise subprocess.TimeoutExpired("zygote", timeout or 0.0)
        return 0

    def kill(self) -> None:
        with contextlib.suppress(OSError):  # it has just ended
            self._server.send(b"k")

    def _ended(self, timeout: float | None) -> bool:
        """Return whether the zygote has ended; wait for that. The server then closes the socket, or says so."""
        return self._server.fileno() < 0 or bool(select.select([self._server], [], [], timeout)[0])

    def __del__(self) -> None:
        self._server.close()


def shared_zygote(
    token: str, environment: Mapping[str, str], log: BinaryIO, *, modules: Sequence[str], kernels: Sequence[str]
) -> ForkedZygote | None:
    """Return a fork of the server of the run with this ``token``, which is started where there is none; None where that
    cannot be."""
    name = blake2b(token.encode(), digest_size=16).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"taut-zygotes-{name}"
    address = str(folder / SOCKET)
    try:
        try:
            folder.mkdir(mode=0o700)
            _start_server(address, environment, log, modules, kernels)
        except FileExistsError:
            about = folder.lstat()
            if about.st_uid != os.geteuid() or about.st_mode & 0o077:
                return None
        deadline_s = time.monotonic() + FOUND_S
        while True:
            try:
                return ForkedZygote(address, environment, log)
            except (FileNotFoundError, ConnectionRefusedError):  # not bound yet, or of a server that was killed
                if time.monotonic() > deadline_s:
                    return None
                time.sleep(0.01)
    except OSError as error:  # a path that is too long for a socket, a full disk
        log.write(f"taut: no shared zygote: {error}\n".encode())
        return None


def _start_server(
    address: str, environment: Mapping[str, str], log: BinaryIO, modules: Sequence[str], kernels: Sequence[str]
) -> None:
    """Start the server, in a process that is nobody's child: the engine that starts it may end before the others."""
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(address)
            listener.listen(256)
            subprocess.run(
                [sys.executable, "-c", _SERVER],
                input=json.dumps([listener.fileno(), address, list(modules), list(kernels)]).encode(),
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno()],
                env=dict(environment),
                start_new_session=True,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            _remove(address)
            raise OSError(str(error)) from None


def _remove(address: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(address)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(address))


# ------------------------------------------------------------------------------------------------ in the server


def main() -> None:
    """Be the server: import what zygotes need, then fork one for each request, until none is left."""
    descriptor, address, modules, kernels = json.load(sys.stdin)
    if os.fork():
        os._exit(0)
    forks = preload(modules)
    if kernels:
        from taut.codecs.kernels.cpu.compilation import missing

        missing(kernels)
    gc.freeze()
    _Server(socket.socket(fileno=descriptor), address, forks).serve()


class _Server:
    """Forks zygotes. It has no thread, so that it may fork at any time. Not ``forks``: a preloaded module started one,
    and zygotes are fresh processes."""

    def __init__(self, listener: socket.socket, address: str, forks: bool) -> None:
        self._listener, self._address, self._forks = listener, address, forks
        self._zygotes: dict[int, socket.socket] = {}  # process id -> the engine's socket
        reads, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        self._ends = FileIO(reads, "rb")  # a byte for each child that ends
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> NoReturn:
        """Fork for engines that ask for a zygote, until none is left."""
        while self._turn(IDLE_S):
            pass
        _remove(self._address)
        while self._turn(IDLE_S if self._zygotes else 0.0):  # for engines that had connected just before
            pass
        os._exit(0)

    def _turn(self, timeout_s: float) -> bool:
        """Do what there is to do; return False where that was nothing and no zygote runs."""
        engines = [each for each in self._zygotes.values() if each.fileno() >= 0]
        watched: list[socket.socket | FileIO] = [self._listener, self._ends, *engines]
        ready = select.select(watched, [], [], timeout_s)[0]
        if self._ends in ready:
            self._ends.read(4096)
            self._reap()
        for pid, engine in self._zygotes.items():
            if engine in ready and not self._obeyed(pid, engine):
                engine.close()  # it is gone, and its zygote sees that, too
        if self._listener in ready:
            self._fork()
        return bool(ready or self._zygotes)

    def _obeyed(self, pid: int, engine: socket.socket) -> bool:
        with contextlib.suppress(OSError):
            if engine.recv(1):
                os.kill(pid, signal.SIGKILL)  # a child that is not reaped yet: no other process has its number
                return True
        return False

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._zygotes.pop(pid).close()

    def _fork(self) -> None:
        engine, _ = self._listener.accept()
        _, files, _, _ = socket.recv_fds(engine, 1, 3)
        if len(files) < 3:
            engine.close()  # it is gone
        else:
            self._zygotes[self._zygote(files, engine)] = engine
        for file in files:
            os.close(file)

    def _zygote(self, files: Sequence[int], engine: socket.socket) -> int:
        """Start a zygote, and return its process id."""
        if not self._forks:
            words = [sys.executable, "-c", _FRESH]
            return subprocess.Popen(words, stdin=files[0], stdout=files[1], stderr=files[2]).pid  # `_reap` waits for it
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self._wakes)
            self._ends.close()
            for each in (self._listener, engine, *self._zygotes.values()):
                each.close()
            become_zygote(files)
        return pid


def become_zygote(files: Sequence[int]) -> NoReturn:
    """Go on, in a fork, as a zygote with these descriptors for its standard input, output and error."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    told = json.loads(sys.stdin.buffer.readline())
    os.environ.clear()
    os.environ.update(told["environment"])
    os.chdir(told["folder"])
    be_zygote()
    os._exit(0)
