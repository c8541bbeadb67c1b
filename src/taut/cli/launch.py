"""A run from start to end: the supervisor in this process, workers beside it, a display, and Ctrl-C."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
import time
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from taut.cli.islands import await_parts, join_models
from taut.cli.logs import ALL, Logs, Wanted
from taut.cli.output.display import Display
from taut.cli.run_end import RunEnd
from taut.engines.base import Engine, Exit
from taut.errors import Misuse
from taut.worker.joining.main_script import MODULE, module_of

if TYPE_CHECKING:
    from taut.supervisor.service import Supervisor

TICK_S = 0.1
TOLD_S = 3.0  # a script that goes on for longer after the run is waited for, and the user is told
GRACE_S = 10.0  # for workers to end by themselves after a failed run


class Interrupts:
    """Counts Ctrl-C and SIGTERM instead of being interrupted by them. ``last``: the name of the last one."""

    def __init__(self) -> None:
        self.count, self.last = 0, ""
        self._before: dict[int, Any] = {}

    def _count(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.last = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._count)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def conduct(
    supervisor: Supervisor,
    engine: Engine | None,
    display: Display,
    logs: Wanted = None,
    parts: Sequence[Supervisor] = (),
) -> RunEnd:
    """Start the engine and show what goes on until the run has its outcome and the local workers are gone.

    The supervisor is started already; both are stopped at the end, whatever happens. ``logs``: whose output is shown.
    ``parts``: the supervisors of an island's other parts.
    """
    return _Conductor(supervisor, engine, display, logs, parts).conduct()


class _Conductor:
    """A run that is shown to its end."""

    def __init__(
        self,
        supervisor: Supervisor,
        engine: Engine | None,
        display: Display,
        logs: Wanted,
        parts: Sequence[Supervisor] = (),
    ) -> None:
        self.supervisor, self.engine, self.display, self.logs = supervisor, engine, display, logs
        self.parts = parts
        self.output = Logs(engine.logs, logs, engine.log_starts) if engine is not None else Logs([])
        self.ended = RunEnd()
        self.interrupts = Interrupts()

    def conduct(self) -> RunEnd:
        ended = self.ended
        try:
            with self.interrupts, self.display:
                if self.engine is not None:
                    self.engine.start()
                    for text in [] if self.display.quiet else self.engine.remarks:
                        self.display.note(text, "dim")
                self._until_outcome()
                if ended.superseded:
                    self.display.note("another supervisor has taken over: this one ends, the run goes on", "yellow")
                if self.engine is not None and (ended.outcome is not None or ended.superseded) and not ended.interrupted:
                    self._until_gone(self.engine)
                if self.parts and ended.outcome is not None:
                    join_models(self.supervisor.run_dir, ended.outcome, await_parts(self.parts))
        finally:
            if self.engine is not None:
                self.engine.close()
            for each in (self.supervisor, *self.parts):
                each.stop()
        self._print_output(last=True)
        ended.unseen, ended.shown = self.output.unseen(), self.output.shown()
        return ended

    def _print_output(self, last: bool = False) -> None:
        known = self.engine.started if self.engine is not None else {}
        ranks = {row.rank: known[row.pid] for row in self.supervisor.view().workers if row.pid in known}
        for index, line in self.output.lines(ranks, last):
            self.display.output(line, index if self.logs == ALL else None)

    def _look(self, exits: list[Exit]) -> None:
        self._print_output()
        ended = self.ended
        for each in exits:
            if not ended.asked:
                ended.exits.append(each)
            if ended.outcome is None and not ended.superseded:
                supervisors = (self.supervisor, *self.parts)
                supervisors[each.index % len(supervisors)].exited(each.pid, each.reason, each.clean)
            elif not ended.asked:
                ended.late.append(each)

    def _until_outcome(self) -> None:
        engine, display, ended = self.engine, self.display, self.ended
        while ended.outcome is None:
            outcome = self.supervisor.wait(TICK_S)
            self._look(engine.poll() if engine is not None else [])
            view = self.supervisor.view()
            ended.joined = ended.joined or bool(view.workers)
            ended.outcome = outcome
            display.doing = _compiling_text(engine)
            display.update(view)
            if self.supervisor.superseded:
                ended.superseded = True
                return
            if self.interrupts.count > 1:
                display.note("stopped")
                ended.interrupted = True
                return
            if self.interrupts.count and not ended.drained:
                ended.drained = True
                display.note("stopping: draining, Ctrl-C again to stop now")
                self.supervisor.drain(self.interrupts.last)
            if engine is not None and not engine.running and not ended.joined and outcome is None:
                return  # every script ended, and none of them asked to be a worker

    def _until_gone(self, engine: Engine) -> None:
        """Wait for the scripts. They may go on after the training as long as they like, and where another supervisor has
        the run; after a failure they get a few seconds. After Ctrl-C, those that have not joined are not waited for."""
        ended, outcome, before = self.ended, self.ended.outcome, self.interrupts.count
        deadline, told_s = time.monotonic() + GRACE_S, time.monotonic() + TOLD_S
        failed = outcome is not None and outcome.state == "failed"
        trained = outcome is None or any(row.statistics.steps for row in outcome.workers.values())
        if failed and before and not trained:
            ended.asked = True  # stopped before anything was trained: scripts that are still starting are not waited for
            return
        joined = {row.pid for row in outcome.workers.values()} if outcome is not None else set()
        while engine.running:
            self._look(engine.poll(TICK_S))
            if before and joined.isdisjoint(engine.pids):
                ended.asked = True
                return
            if time.monotonic() > told_s and not self.display.quiet:
                told_s = float("inf")
                self.display.note("the run is over; waiting for the scripts to end, Ctrl-C stops them", "dim")
            if self.interrupts.count > before:
                ended.interrupted = True
                return
            if failed and time.monotonic() > deadline:
                if ended.asked:
                    return
                engine.terminate()
                ended.asked, deadline = True, time.monotonic() + GRACE_S


def _compiling_text(engine: Engine | None) -> str:
    if engine is None or not engine.compiling:
        return ""
    from taut.codecs.registry import compiling_text  # with NumPy: commands that start nothing do without it

    return compiling_text(*engine.compiling)


def say_how_to_join(supervisor: Supervisor, display: Display, machines: str = "every machine") -> None:
    """Print where the supervisor is, and the command with which workers join. These lines are needed to go on, so that
    they are printed with --quiet and --json too."""
    display.note(f"supervisor: {supervisor.address}")
    display.note(f"token file: {supervisor.token_file} (copy it; whoever has it may join)")
    join = f"taut worker --join {supervisor.address} --token-file {shlex.quote(str(supervisor.token_file))} SCRIPT"
    display.note(f"on {machines}: {join}", copied=True)


def script_of(given: Path, module: bool) -> Path:
    """Check the script, and return it as engines take it; a ``module`` is written as ``-m NAME``."""
    script = Path(MODULE + str(given)) if module else given
    check_script(script)
    return script


def check_script(script: Path, folder: str = "") -> None:
    """Refuse a script that is not there, before anything is started; a module, as seen from ``folder`` (else: here)."""
    module = module_of(script)
    if module:
        _check_module(module, folder or str(Path.cwd()))
        return
    if script.is_dir():
        raise Misuse(f"script {str(script)!r}", "a Python file, not a folder")
    if not script.exists():
        near = sorted(path.name for path in script.parent.glob("*.py")) if script.parent.is_dir() else []
        from taut.specs import did_you_mean

        raise Misuse(f"script {str(script)!r}", "a file that exists", did_you_mean(script.name, near))


def _check_module(name: str, folder: str) -> None:
    """Refuse a module that cannot be found, without importing anything."""
    folders: list[str] | None = [folder, *sys.path]
    for part in name.split("."):
        found = PathFinder.find_spec(part, folders) if folders is not None else None
        if found is None:
            remedy = "write its name without .py" if name.endswith(".py") else f"it is looked for from {folder}"
            raise Misuse(f"-m {name}", "a module that can be found", remedy)
        folders = None if found.submodule_search_locations is None else list(found.submodule_search_locations)
