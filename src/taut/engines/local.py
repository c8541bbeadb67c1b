"""Worker processes on this machine: start N copies of a user's script and tell how each ended."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NoReturn, TypeAlias

from taut.config import IslandEnvironment
from taut.engines.base import Engine, Exit
from taut.engines.devices import assign, device_variables, visible_gpus
from taut.engines.fork_server import ForkedZygote, shared_zygote
from taut.engines.script import command
from taut.engines.zygote import Imports, LaunchPlan
from taut.errors import StorageFailed

Zygote: TypeAlias = "subprocess.Popen[str] | ForkedZygote"
STARTS = ("zygote", "spawn")
CLOSE_S = 10.0  # for the zygote to end after its workers were killed, which takes it milliseconds

# Without the current folder in sys.path: a user's file named like a module of ours must not come first.
_ZYGOTE = "import sys; sys.path.pop(0); from taut.engines.zygote import main; main()"


def default_start() -> str:
    """Return ``zygote`` where processes may safely be forked, else ``spawn``."""
    return "zygote" if sys.platform == "linux" else "spawn"


class LocalEngine(Engine):
    """Workers on this machine. They end when this process does.

    Arguments beside those of every engine: ``shared_by``: the run's token, where several engines of the run on this
    machine fork their workers from the same imports; ``zygote``: a process that has begun to import (`begun_zygote`)."""

    name: ClassVar[str] = "local"

    def __init__(
        self, *args: Any, log_dir: str | Path, shared_by: str = "", zygote: Zygote | None = None, **settings: Any
    ) -> None:
        super().__init__(*args, log_dir=log_dir, **settings)
        self._shared_by, self._begun = shared_by, zygote
        self.own_log = Path(log_dir) / "zygote.log"
        self._environment = {**os.environ, **_thread_limits(self.threads), **self.environment}
        self._plan = LaunchPlan(
            script=self.script,
            args=self.args,
            logs=[str(log) for log in self.logs],
            threads=self.threads,
            kernels=self.kernels,
            environment=self.environment,
            variables=[
                device_variables(*each) | self._part_variables(each[0])
                for each in enumerate(devices_of(len(self.logs), self.devices))
            ],
        )
        self._imports = Imports(self.start_by or default_start(), self.preload)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process: Zygote | None = None
        self._reader: threading.Thread | None = None
        self._expected = len(self.logs)  # exits still to come

    def _part_variables(self, index: int) -> dict[str, str]:
        """Return the variables of a process of an island; none where a worker is one process."""
        if not self.parts:
            return {}
        number, part = divmod(index, len(self.parts))
        store = self.logs[0].with_name(f"island-{number}").absolute()
        store.unlink(missing_ok=True)  # of the run before it was resumed
        loopback = {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}  # what it sends is in the clear
        return {**self.parts[part], **loopback, **IslandEnvironment(part, len(self.parts), str(store)).variables()}

    @classmethod
    def check(cls, workers: int, devices: str | None) -> None:
        devices_of(workers, devices)

    def start(self) -> None:
        """Start the zygote; the workers follow as soon as it has imported what they share."""
        try:
            self.own_log.touch()
        except OSError as error:
            raise StorageFailed(f"{self.own_log} could not be written: {error.strerror}") from error
        with open(self.own_log, "ab") as own_log:
            self._process = self._begun or _told(self._launch(own_log), self._imports.to_json())
        _told(self._process, self._plan.to_json())
        self._reader = threading.Thread(target=self._read, name="engine", daemon=True)
        self._reader.start()

    def _launch(self, own_log: BinaryIO) -> Zygote:
        if self._shared_by and self._imports.start == "zygote":
            forked = shared_zygote(
                self._shared_by, self._environment, own_log, modules=self.preload, kernels=self.kernels
            )
            if forked is not None:
                return forked
        return _started(own_log, self._environment)

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._process.wait()
        self._lines.put(None)

    def poll(self, timeout_s: float = 0.0) -> list[Exit]:
        exits: list[Exit] = []
        while True:
            try:
                line = self._lines.get(timeout=timeout_s) if timeout_s > 0 else self._lines.get_nowait()
            except queue.Empty:
                return exits
            timeout_s = 0.0
            exits += self._lost() if line is None else self._understood(json.loads(line))

    def _understood(self, event: dict[str, int]) -> list[Exit]:
        if "compiled" in event:
            self.compiling = (event["compiled"], event["wanted"]) if event["compiled"] < event["wanted"] else None
            return []
        if "started" in event:
            self.pids[event["started"]] = self.started[event["started"]] = event["index"]
            return []
        pid, code = event["exited"], event["code"]
        self._expected -= 1
        index = self.pids.pop(pid)
        if code and self.parts:
            self._end_island(index // len(self.parts))
        return [Exit(pid, describe_exit(code), code == 0, index, code)]

    def _end_island(self, number: int) -> None:
        """End the processes of an island that has lost one: without it they would wait for ever."""
        for pid, index in self.pids.items():
            if index // len(self.parts) == number:
                self._command(f"kill {pid}")

    def _lost(self) -> list[Exit]:
        """Report the workers that ended with the zygote."""
        reason = f"its parent process failed, see {self.own_log}"
        lost = [Exit(pid, reason, False, index, 1) for pid, index in self.pids.items()]
        never_started = range(max(0, self._expected - len(lost)))
        lost += [Exit(0, reason, False, len(self.logs) - 1 - number, 1) for number in never_started]
        self.pids, self._expected = {}, 0
        return lost

    @property
    def running(self) -> bool:
        return self._expected > 0

    def terminate(self) -> None:
        self._command("terminate")

    def kill(self) -> None:
        self._command("kill")

    def _command(self, word: str) -> None:
        if self._process is not None:
            _told(self._process, word)

    def close(self) -> None:
        if self._process is None:
            return
        self.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        if not self.pids and self._process.poll() is None and self._expected:
            self._process.kill()  # still importing: nobody was started yet
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:  # stopped, or stuck: its workers die with it
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join()
        self._process.stdout.close()


def begun_zygote(threads: int, preload: Sequence[str], log: Path) -> Zygote:
    """Return a zygote that begins to import, for an engine that will be made soon. Its own output goes to ``log``."""
    with open(log, "ab") as own_log:
        process = _started(own_log, {**os.environ, **_thread_limits(threads)})
    return _told(process, Imports(default_start(), tuple(preload)).to_json())


def _started(own_log: BinaryIO, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _ZYGOTE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=own_log,
        env=environment,
        text=True,
        start_new_session=True,  # Ctrl-C reaches the launcher alone: it drains, then the workers end
    )


def _told(zygote: Zygote, line: str) -> Zygote:
    """Write a line to the zygote. Where it is gone, its workers are, too, and `LocalEngine.poll` tells."""
    if zygote.stdin is not None and not zygote.stdin.closed:
        with contextlib.suppress(BrokenPipeError):
            zygote.stdin.write(line + "\n")
            zygote.stdin.flush()
    return zygote


def devices_of(workers: int, devices: str | None) -> list[str | None]:
    """Return the device of each worker on this machine; None without ``--devices``."""
    return [None] * workers if devices is None else [*assign(devices, workers, visible_gpus())]


def become(script: str | Path, args: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Turn this process into SCRIPT, a worker, with the same terminal and Ctrl-C."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command(str(script), args, alone=True), {**os.environ, **environment})


def describe_exit(code: int) -> str:
    """Return an exit code in words.

    >>> describe_exit(-9), describe_exit(0), describe_exit(3)
    ('killed by SIGKILL', 'finished', 'exit code 3')
    """
    if code == 0:
        return "finished"
    if code > 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _thread_limits(threads: int) -> dict[str, str]:
    """Return the variables by which libraries limit their threads. Those of torch are known: see ``config.resolve``."""
    torch = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    return torch | ({} if "OPENBLAS_NUM_THREADS" in os.environ else {"OPENBLAS_NUM_THREADS": str(threads)})
