"""One process that imports torch once, forks the workers, reaps them, and ends them when the launcher dies.

The launcher (``taut.engines.local``) writes two lines to standard input, as JSON: the ``Imports``, and at once or later
the ``LaunchPlan``. Then it may write ``terminate``, ``kill`` or ``kill PID``; the end of the input means that the
launcher is gone, and the workers are ended. The zygote answers on standard output with JSON lines: ``{"compiled": k,
"wanted": n}`` while it compiles kernels that are not in numba's cache (``taut.engines.kernels``), ``{"started": pid,
"index": k}`` for every worker, and ``{"exited": pid, "code": c}`` (negative: the signal) when it ends.

Forking is safe only while nothing runs beside the main thread: so imports come first, no torch operation is
made before the forks, and the threads of this file start after them. Where a preloaded module breaks that
rule, or where the plan says ``spawn``, every worker is a fresh ``python SCRIPT`` instead.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import BinaryIO, NoReturn, TextIO

from taut.engines.script import command, leave, run_script

GRACE_S = 5.0  # between asking the workers to end and ending them, once the launcher is gone
# torch._dynamo: the first optimizer of a process imports it, which takes as long as half of torch.
PRELOADED = (
    "torch",
    "torch._dynamo",
    "safetensors.torch",
    "taut.worker.join",
    "taut.worker.session",
)


@dataclass(frozen=True)
class Imports:
    """How processes are started, and the modules to import before, beside those of taut."""

    start: str = "zygote"
    preload: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class LaunchPlan:
    """The processes to start, one for each of ``logs``: worker k's output goes to ``logs[k]``."""

    script: str
    args: list[str]
    logs: list[str]
    threads: int
    kernels: tuple[str, ...] = ()  # that the workers' codecs need
    environment: dict[str, str] = field(default_factory=dict)  # variables of all workers
    variables: list[dict[str, str]] = field(default_factory=list)  # of each worker's own

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    """Be the zygote process: read the plan, start the workers, tell what becomes of them."""
    # Standard output belongs to the launcher alone: what an import prints must not get between its lines.
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    imports = Imports(**json.loads(sys.stdin.buffer.readline()))
    forks = imports.start == "zygote" and preload(imports.preload)
    line = sys.stdin.buffer.readline()
    if not line:
        os._exit(0)  # the launcher is gone
    plan = LaunchPlan(**json.loads(line))
    os.environ.update(plan.environment)
    if plan.kernels:
        from taut.engines.kernels import prepare_kernels

        prepare_kernels(plan.kernels, lambda done, wanted: _tell(report, compiled=done, wanted=wanted))
    start = _fork_all if forks else _spawn_all
    _watch(start(plan, report), report)


def preload(modules: Sequence[str]) -> bool:
    """Import what every worker will need; return True where forking is still safe afterwards."""
    gc.disable()  # imports make much and drop little: collecting between them doubles their time
    for name in (*PRELOADED, *modules):
        try:
            importlib.import_module(name)
        except Exception as error:  # the script may do without it, or say better what is missing
            print(f"taut: preloading {name}: {error}", file=sys.stderr)
    torch = sys.modules.get("torch")
    if threading.active_count() > 1 or (torch is not None and torch.cuda.is_initialized()):
        print("taut: a preloaded module started threads or CUDA; starting fresh processes", file=sys.stderr)
        return False
    return True


# ---------------------------------------------------------------------------------------------------- fork


def _fork_all(plan: LaunchPlan, report: TextIO) -> dict[int, Callable[[], int]]:
    zygote = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()  # the imported world is never collected: its pages stay shared between the forks
    gc.enable()
    waiters: dict[int, Callable[[], int]] = {}
    for index, log in enumerate(plan.logs):
        pid = os.fork()
        if pid == 0:
            report.close()
            os.environ.update(plan.variables[index])
            _become_worker(plan, log, zygote)
        waiters[pid] = lambda pid=pid: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # type: ignore[misc]
        _tell(report, started=pid, index=index)
    return waiters


def _become_worker(plan: LaunchPlan, log: str, zygote: int) -> NoReturn:
    """Be, in the fork, what ``python SCRIPT ARGS`` would have been."""
    die_with_parent(zygote)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with opened_log(log) as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        torch.set_num_threads(plan.threads)
        torch.default_generator.seed()  # forks share the generators' states; fresh processes would not
    if numpy is not None:
        numpy.random.seed()
    leave(run_script(plan.script, plan.args))


def opened_log(path: str) -> BinaryIO:
    """Return a worker's log, opened for more; where that cannot be, its output is lost and it trains all the same."""
    try:
        return open(path, "ab")
    except OSError as error:
        print(f"taut: {path} cannot be written: {error.strerror}", file=sys.stderr)
        return open(os.devnull, "ab")


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however it ends (Linux; elsewhere: nothing)."""
    if sys.platform != "linux":
        return
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call above
        os._exit(1)


# ---------------------------------------------------------------------------------------------------- spawn


def _spawn_all(plan: LaunchPlan, report: TextIO) -> dict[int, Callable[[], int]]:
    zygote = os.getpid()
    waiters: dict[int, Callable[[], int]] = {}
    prepare = (lambda: die_with_parent(zygote)) if sys.platform == "linux" else None
    gc.enable()
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    for index, log in enumerate(plan.logs):
        with opened_log(log) as output:
            process = subprocess.Popen(
                command(plan.script, plan.args),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment | plan.variables[index],
                # Safe: this process's own threads start later, and the function takes no lock.
                preexec_fn=prepare,  # noqa: PLW1509
            )
        waiters[process.pid] = process.wait
        _tell(report, started=process.pid, index=index)
    return waiters


# ---------------------------------------------------------------------------------------------------- watch


def _watch(waiters: dict[int, Callable[[], int]], report: TextIO) -> None:
    """Wait for commands and for the workers' ends, until the last worker is gone."""
    events: queue.SimpleQueue[tuple[str, int, int]] = queue.SimpleQueue()

    def wait_for(pid: int, wait: Callable[[], int]) -> None:
        events.put(("exited", pid, wait()))

    def listen() -> None:
        for line in iter(sys.stdin.buffer.readline, b""):
            events.put((line.decode().strip(), 0, 0))
        events.put(("launcher gone", 0, 0))

    for pid, wait in waiters.items():
        threading.Thread(target=wait_for, args=(pid, wait), daemon=True).start()
    threading.Thread(target=listen, daemon=True).start()
    alive = set(waiters)
    while alive:
        what, pid, code = events.get()
        if what == "exited":
            alive.discard(pid)
            _tell(report, exited=pid, code=code)
        elif what.startswith("kill"):  # one of them, or all
            one = what.removeprefix("kill").strip()
            _signal(alive & {int(one)} if one else alive, hard=True)
        else:  # asked to end them, or nobody is left to ask
            _signal(alive, hard=False)
            if what == "launcher gone":
                threading.Timer(GRACE_S, events.put, [("kill", 0, 0)]).start()
    os._exit(0)  # the listener may still hold standard input: an interpreter shutdown would wait for its lock


def _signal(pids: set[int], hard: bool) -> None:
    how = getattr(signal, "SIGKILL", signal.SIGTERM) if hard else signal.SIGTERM
    for pid in pids:
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            continue  # it has just ended; its waiter tells


def _tell(report: TextIO, **what: int) -> None:
    try:
        report.write(json.dumps(what) + "\n")
        report.flush()
    except BrokenPipeError:
        pass  # the launcher is gone; the end of the input says so too
