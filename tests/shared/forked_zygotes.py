"""Zygotes that are forked from one process, which has imported torch once for all tests of a session: where tests run
side by side, for all of their processes.

A zygote (``taut.engines.zygote``) spends seconds on its imports, and each test with real workers starts one or more. Here
it is a fork of a server that has made these imports; from then on it is the same: it reads its plan, forks the workers,
reaps them, and ends them when the launcher dies. In the tests' own process, ``LocalCluster`` starts such zygotes.
``taut_command()`` is the command line in a process of its own, which is such a fork, too (``forked_command``), and so are
its zygotes. The tests of the engine, of packages, of an interrupted start and of a run with plugins have real processes.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from typing import BinaryIO, NamedTuple, NoReturn

from taut.engines.fork_server import ForkedZygote, become_zygote
from taut.engines.local import LocalEngine

VARIABLE = "FORKED_ZYGOTES"  # where the server listens, for the processes that tests start
COMMANDS = (
    "taut.cli.main",
    "taut.supervisor.service",
    "taut.supervisor.control",
    "taut.comparison",
    "taut.transport.zmq.factory",
)  # what commands need besides
LIBRARIES = ("pydantic.type_adapter", "sklearn.datasets", "matplotlib.pyplot")  # typer's, the tests' scripts', figures'
_TESTS = "import sys; exec(sys.argv.pop())"  # the program of a process that runs tests: execnet gives it the code
_PREPARE = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import forked_zygotes; del sys.path[0]"


class ForkedEngine(LocalEngine):
    """``LocalEngine`` with a forked zygote."""

    def _launch(self, own_log: BinaryIO) -> ForkedZygote:
        return ForkedZygote(server_address(), self._environment, own_log)


def taut_command(program: str = "from taut.cli.main import main; main()") -> list[str]:
    """Return the words that start the command line, or ``program``, in a forked process with zygotes that are forked."""
    server_address()
    return [sys.executable, "-I", "-S", os.path.join(os.path.dirname(__file__), "forked_command.py"), program]


def script_command(path: object) -> list[str]:
    """Return the words that start a script in a forked process."""
    return [
        *taut_command("import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"),
        str(path),
    ]


def python_for_tests() -> str:
    """Return the command line of a Python, for execnet, that is a fork: it runs tests, and its engines are real ones."""
    return shlex.join(taut_command(_TESTS))


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


class Fork(NamedTuple):
    pid: int
    starter: socket.socket
    command: bool


def serve(descriptor: int) -> None:
    """Import what zygotes need, then fork one for each request, until the process that started the server is gone."""
    import gc
    import importlib

    from taut.codecs.registry import kernels_of
    from taut.engines.kernels import prepare_kernels
    from taut.engines.zygote import PRELOADED

    gc.disable()
    for name in (*PRELOADED, *COMMANDS):
        importlib.import_module(name)
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):  # an environment of an extra may lack some
            importlib.import_module(name)
    for each in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # torch's: a moment of each fork's end
        each.atexit = False
    prepare_kernels(kernels_of(["tether"]), lambda done, wanted: None)  # the codec of most tests
    gc.freeze()
    sys.path.remove("")  # as a zygote does
    listener = socket.socket(fileno=descriptor)
    forks: dict[int, Fork] = {}  # by its pidfd
    while sys.stdin not in (
        ready := _ready(
            listener, sys.stdin, *forks, *(each.starter for each in forks.values() if each.starter.fileno() > 0)
        )
    ):
        for ended, fork in list(forks.items()):
            if ended in ready:
                del forks[ended]
                _tell_end(fork.starter, os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1]))
                os.close(ended)
            elif fork.starter in ready:
                if fork.starter.recv(1) or fork.command:  # a command's starter was killed
                    os.kill(fork.pid, signal.SIGKILL)
                fork.starter.close()  # a zygote sees by itself that its launcher is gone
        if listener in ready:
            _fork(listener, forks)
    os._exit(0)


def _ready(*watched: object) -> set[object]:
    return {*select.select(watched, [], [])[0]}  # type: ignore[type-var]


def _tell_end(starter: socket.socket, code: int) -> None:
    with starter, contextlib.suppress(OSError):
        starter.sendall(json.dumps(code).encode())


def _fork(listener: socket.socket, forks: dict[int, Fork]) -> None:
    starter, _ = listener.accept()
    kind, files, _, _ = socket.recv_fds(starter, 1, 4)
    request = json.loads(starter.makefile("rb").readline()) if kind == b"$" else {}
    if not (pid := os.fork()):
        for descriptor, other in forks.items():
            os.close(descriptor)
            other.starter.close()
        starter.close()
        listener.close()
        if request:
            _become_command(files, **request)
        become_zygote(files)
    told = os.pidfd_open(pid)
    if request:
        with contextlib.suppress(OSError):  # the starter is gone
            socket.send_fds(starter, [b"!"], [told])
    forks[told] = Fork(pid, starter, bool(request))
    for file in files:
        os.close(file)


def _become_command(
    files: list[int], program: str, words: list[str], environment: dict[str, str], folder: str
) -> NoReturn:
    """Run the program as a new process would, and end."""
    import ctypes
    import gc

    *streams, network = files
    if os.fstat(network).st_ino != os.stat("/proc/self/ns/net").st_ino and ctypes.CDLL(None).setns(network, 0) != 0:
        raise OSError("cannot go to the network namespace of the starter")
    os.setsid()
    _take_streams(streams)
    os.close(network)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _take_surroundings(environment, folder)
    sys.argv = ["taut", *words]
    if program != _TESTS:
        LocalEngine._launch = ForkedEngine._launch  # type: ignore[method-assign]
        os.execve = _become_program
    gc.enable()
    code = _exit_code_of(program)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _become_program(
    path: str, words: list[str], environment: dict[str, str], really: Callable[..., NoReturn] = os.execve
) -> NoReturn:
    """Do what ``os.execve`` does; but `python -c` of ``taut worker`` goes on here, where torch is imported."""
    if path != sys.executable or words[1] != "-c":
        really(path, words, environment)
    sys.stdout.flush()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _take_surroundings(environment, os.getcwd())
    sys.argv = words[1:2] + words[3:]
    sys.path.insert(0, "")
    sys.exit(_exit_code_of(words[2]))


def _exit_code_of(program: str) -> int:
    """Run the program, and return the code with which Python would end."""
    try:
        exec(program, {"__name__": "__main__"})
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


def _take_streams(files: list[int]) -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)


def _take_surroundings(environment: dict[str, str], folder: str) -> None:
    added = environment.get("PYTHONPATH", "").split(os.pathsep) if environment.get("PYTHONPATH") else []
    sys.path[:0] = [path for path in added if path not in sys.path]
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
