"""One worker on a node of a Ray cluster: the actor that runs a script in a process of its own, or a function in its own.

The engine (engine.py) calls `look`, then `begin`, then `news` again and again. Calls may be repeated: `news` gives the
output from the offset that the caller has, and how the worker ended as often as it is asked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taut.engines.local import LocalEngine
from taut.engines.script import exit_code
from taut.worker.joining.main_script import module_of

NEWS_S, LOOK_S = 1.0, 0.05  # a call of `news` ends after this time; how often it looks
PIECE = 1 << 20


@dataclass(frozen=True)
class Task:
    """The worker's work: a script with its arguments, or a function, whose code is in the file ``script``."""

    script: str
    args: list[str]
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the local engine
    function: Callable[[], object] | None = None


@dataclass(frozen=True)
class Node:
    """The node that an actor is on. ``missing``: why the script cannot run there, else empty."""

    node_id: str
    host: str
    missing: str = ""


@dataclass(frozen=True)
class News:
    """``output`` from the asked offset on; ``code`` once the worker has ended."""

    output: bytes
    pid: int
    code: int | None
    compiling: tuple[int, int] | None = None


def fingerprint(script: str) -> str:
    """Return the digest of a script's file; empty for a module, and where there is no file."""
    if module_of(script) or not Path(script).is_file():
        return ""
    return hashlib.sha256(Path(script).read_bytes()).hexdigest()


class WorkerActor:
    """A worker of the run."""

    def __init__(self) -> None:
        self._folder = ""  # of the log, from `begin` on
        self._lock = threading.Lock()
        self._engine: LocalEngine | None = None
        self._pid, self._told = 0, 0
        self._code: int | None = None
        self._known: tuple[int, tuple[int, int] | None] = (0, None)  # what the last news said
        self._stdout = os.dup(1)
        self._log = Path(os.devnull)

    def look(self, folder: str, script: str, digest: str) -> Node:
        """Go to the run's working folder, and return what this node is like."""
        import ray

        context = ray.get_runtime_context()
        if not context.runtime_env.get("working_dir") and os.path.isdir(folder):
            os.chdir(folder)
        missing = ""
        if digest and not os.path.isfile(script):
            missing = f"{script} is not there"
        elif digest and fingerprint(script) != digest:
            missing = f"{os.path.abspath(script)} is another script"
        return Node(context.get_node_id(), socket.gethostname(), missing)

    def begin(self, task: Task, environment: Mapping[str, str]) -> None:
        """Start the worker, unless that is done."""
        if self._folder:
            return
        self._folder = tempfile.mkdtemp(prefix="taut-ray-")
        self._log = Path(self._folder) / "worker-0.log"
        if task.function is not None:
            os.environ.update(environment)
            self._pid = os.getpid()
            threading.Thread(
                target=self._call, args=(task.function, task.script), name="taut worker", daemon=True
            ).start()
            return
        shared_by = environment.get("TAUT_TOKEN", "")  # the actors of a node fork their workers from the same imports
        self._engine = LocalEngine(
            task.script, task.args, 1, environment, log_dir=self._folder, shared_by=shared_by, **task.settings
        )
        self._engine.start()

    def _call(self, function: Callable[[], object], source: str) -> None:
        """Be the function's worker. Its output goes to the log, as a script's does."""
        with open(self._log, "ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError):
                stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        code = exit_code(function, source)
        sys.stdout.flush()
        sys.stderr.flush()
        self._code = code

    def news(self, offset: int) -> News:
        """Return what is new since the output was ``offset`` bytes long; wait a little for it."""
        deadline = time.monotonic() + NEWS_S
        with self._lock:
            while True:
                code = self._poll()
                output = self._output(offset)
                compiling = None if self._engine is None else self._engine.compiling
                ended = code is not None and len(output) < PIECE
                changed = (self._pid, compiling) != self._known
                if output or ended or changed or time.monotonic() > deadline:
                    self._known = self._pid, compiling
                    return News(output, self._pid, code if ended else None, compiling)

    def _poll(self) -> int | None:
        """Wait a moment, and return the worker's exit code once it has ended."""
        if self._engine is None:
            if self._code is None:
                time.sleep(LOOK_S)
            return self._code
        known = self._pid
        exits = self._engine.poll(0.0 if self._code is not None else LOOK_S)
        for pid in self._engine.pids:
            self._pid = pid
        for each in exits:
            self._pid, self._code = each.pid or known, each.code
            if not each.pid:
                self._explain()
        return self._code

    def _explain(self) -> None:
        """Add to the log why the worker could not be started."""
        assert self._engine is not None
        with contextlib.suppress(OSError), open(self._log, "ab") as log:
            log.write(self._engine.own_log.read_bytes())

    def _output(self, offset: int) -> bytes:
        try:
            with open(self._log, "rb") as log:
                log.seek(offset)
                output = log.read(PIECE)
        except FileNotFoundError:
            return b""
        if offset + len(output) > self._told:  # Ray's own logs have it, too
            with contextlib.suppress(OSError):
                os.write(self._stdout, output[max(0, self._told - offset) :])
            self._told = offset + len(output)
        return output

    def end(self, hard: bool) -> None:
        """Ask the worker to end, or (``hard``) end it."""
        if self._engine is not None:
            self._engine.kill() if hard else self._engine.terminate()
        elif self._pid:
            os._exit(1)  # a function cannot be asked

    def close(self) -> None:
        """End the worker, and leave nothing behind."""
        if self._engine is not None:
            self._engine.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
