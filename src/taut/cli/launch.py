"""A run from start to end: the supervisor in this process, workers beside it, a display, and Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from taut.cli.logs import ALL, Logs, Wanted, failures
from taut.cli.output.display import Display
from taut.early_sigint import INTERRUPTED
from taut.engines.base import Engine, Exit
from taut.engines.script import MODULE, module_of
from taut.errors import Misuse, RunFailed

if TYPE_CHECKING:
    from taut.supervisor.service import Supervisor
    from taut.supervisor.view import Outcome

TICK_S = 0.1
TOLD_S = 3.0  # a script that goes on for longer after the run is waited for, and the user is told
GRACE_S = 10.0  # for workers to end by themselves after a failed run


@dataclass
class Ended:
    """How a launch ended. ``exits`` are the local workers' ends, in order."""

    outcome: Outcome | None = None
    exits: list[Exit] = field(default_factory=list)
    late: list[Exit] = field(default_factory=list)  # after the outcome: the supervisor did not judge these
    interrupted: bool = False
    drained: bool = False  # by Ctrl-C or SIGTERM
    joined: bool = False
    superseded: bool = False  # another supervisor has the run
    asked: bool = False  # the workers were asked to end: how they end from there on is no news
    unseen: list[Path] = field(default_factory=list)  # logs of local workers that were not shown
    shown: set[int] = field(default_factory=set)  # workers whose output was shown

    @property
    def misuse(self) -> bool:
        """Return whether all scripts that failed did so by a mistake of their author's, which they have told."""
        codes = {each.code for each in self.exits if each.code > 0}
        return codes == {Misuse.exit_code}

    @property
    def exit_code(self) -> int:
        code = self._exit_code
        return Misuse.exit_code if code == 1 and self.misuse else code

    @property
    def _exit_code(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        if any(not each.clean for each in self.late):
            return 1
        if self.outcome is None:
            return 0 if self.superseded else 1
        return self.outcome.exit_code


class Interrupts:
    """Counts Ctrl-C and SIGTERM instead of being interrupted by them. ``last``: which it was."""

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

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def conduct(supervisor: Supervisor, engine: Engine | None, display: Display, logs: Wanted = None) -> Ended:
    """Start the engine and show what goes on until the run has its outcome and the local workers are gone.

    The supervisor is started already; both are stopped at the end, whatever happens. ``logs``: whose output is shown.
    """
    ended = Ended()
    output = Logs(engine.logs, logs, engine.log_starts) if engine is not None else Logs([])

    def print_output(last: bool = False) -> None:
        known = engine.started if engine is not None else {}
        ranks = {row.rank: known[row.pid] for row in supervisor.view().workers if row.pid in known}
        for index, line in output.lines(ranks, last):
            display.output(line, index if logs == ALL else None)

    def look(exits: list[Exit]) -> None:
        print_output()
        for each in exits:
            if not ended.asked:
                ended.exits.append(each)
            if ended.outcome is None and not ended.superseded:
                supervisor.exited(each.pid, each.reason, each.clean)
            elif not ended.asked:
                ended.late.append(each)

    try:
        with Interrupts() as interrupts, display:
            if engine is not None:
                engine.start()
            _until_outcome(supervisor, engine, display, interrupts, ended=ended, look=look)
            if ended.superseded:
                display.note("another supervisor has taken over: this one ends, the run goes on", "yellow")
            if engine is not None and (ended.outcome is not None or ended.superseded) and not ended.interrupted:
                _until_gone(engine, display, interrupts, ended=ended, look=look)
    finally:
        if engine is not None:
            engine.close()
        supervisor.stop()
    print_output(last=True)
    ended.unseen, ended.shown = output.unseen(), output.shown()
    return ended


def _compiling_text(engine: Engine | None) -> str:
    """Return what is said while the engine compiles kernels; an empty text when it does not."""
    if engine is None or not engine.compiling:
        return ""
    from taut.codecs.registry import compiling_text  # with NumPy: commands that start nothing do without it

    return compiling_text(*engine.compiling)


def _until_outcome(
    supervisor: Supervisor,
    engine: Engine | None,
    display: Display,
    interrupts: Interrupts,
    *,
    ended: Ended,
    look: Callable[[list[Exit]], None],
) -> None:
    draining = False
    while ended.outcome is None:
        outcome = supervisor.wait(TICK_S)
        look(engine.poll() if engine is not None else [])
        view = supervisor.view()
        ended.joined = ended.joined or bool(view.workers)
        ended.outcome = outcome
        display.doing = _compiling_text(engine)
        display.update(view)
        if supervisor.superseded:
            ended.superseded = True
            return
        if interrupts.count > 1:
            display.note("stopped")
            ended.interrupted = True
            return
        if interrupts.count and not draining:
            draining = ended.drained = True
            display.note("stopping: draining, Ctrl-C again to stop now")
            supervisor.drain(interrupts.last)
        if engine is not None and not engine.running and not ended.joined and outcome is None:
            return  # every script ended, and none of them asked to be a worker


def _until_gone(
    engine: Engine,
    display: Display,
    interrupts: Interrupts,
    *,
    ended: Ended,
    look: Callable[[list[Exit]], None],
) -> None:
    """Wait for the scripts. They may go on after the training as long as they like, and where another supervisor has the
    run; after a failure they get a few seconds. After Ctrl-C, those that have not joined are not waited for."""
    before, deadline, told_s = interrupts.count, time.monotonic() + GRACE_S, time.monotonic() + TOLD_S
    outcome = ended.outcome
    failed = outcome is not None and outcome.state == "failed"
    trained = outcome is None or any(row.statistics.steps for row in outcome.workers.values())
    if failed and before and not trained:
        ended.asked = True  # stopped before anything was trained: scripts that are still starting are not waited for
        return
    joined = {row.pid for row in outcome.workers.values()} if outcome is not None else set()
    while engine.running:
        look(engine.poll(TICK_S))
        if before and joined.isdisjoint(engine.pids):
            ended.asked = True
            return
        if time.monotonic() > told_s and not display.quiet:
            told_s = float("inf")
            display.note("the run is over; waiting for the scripts to end, Ctrl-C stops them", "dim")
        if interrupts.count > before:
            ended.interrupted = True
            return
        if failed and time.monotonic() > deadline:
            if ended.asked:
                return
            engine.terminate()
            ended.asked, deadline = True, time.monotonic() + GRACE_S


def report_failures(ended: Ended, engine: Engine, display: Display) -> None:
    """Print the last lines of the scripts that failed, each once; not those that were shown as they came."""
    failed = [each for each in ended.exits if not each.clean]
    reasons = {each.index: each.reason for each in failed}
    logs = [(each.index, engine.logs[each.index]) for each in failed if each.pid]
    for workers, lines in failures(logs, engine.log_starts):
        who = "worker " + ", ".join(f"{index} ({reasons[index]})" for index in sorted(workers))
        shown = not ended.shown.isdisjoint(workers)
        display.note(f"{who}: see above" if shown else f"{who}:", "red")
        for line in [] if shown else lines:
            display.output("  " + line)
    if any(each.pid == 0 for each in failed):
        display.note(f"the workers could not be started, see {engine.own_log}:", "red")
        for _, lines in failures([(0, engine.own_log)]):
            for line in lines:
                display.output("  " + line)


def unseen_text(ended: Ended) -> str:
    """Return where the output is that was not shown; nothing where there is none.

    >>> unseen_text(Ended(unseen=[Path("runs/a/worker-1.log"), Path("runs/a/worker-2.log")]))
    'output of the other workers: runs/a/worker-1.log, worker-2.log'
    """
    if not ended.unseen:
        return ""
    first, *others = ended.unseen
    names = [str(first), *(path.name for path in others[:3]), *(["..."] if len(others) > 3 else [])]
    return "output of the other workers: " + ", ".join(names)


def check_joined(ended: Ended, script: Path) -> None:
    """A script that ends well without ever joining is a mistake: nothing was trained together."""
    if ended.outcome is None and not ended.interrupted and not ended.superseded:
        if any(not each.clean for each in ended.exits):
            raise RunFailed(f"{script} failed before it joined the run")
        raise RunFailed(
            f"{script} ended without joining the run, so nothing was trained; "
            "it must call taut.join(model, optimizer), see `taut run --help`"
        )


def script_of(given: Path, module: bool) -> Path:
    """Return what engines take for the script, checked; a ``module`` is written as ``-m NAME``."""
    script = Path(MODULE + str(given)) if module else given
    check_script(script)
    return script


def check_script(script: Path, folder: str = "") -> None:
    """The script must be there before anything is started; a module, as seen from ``folder`` (else the current one)."""
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
    places: list[str] | None = [folder, *sys.path]
    for part in name.split("."):
        found = PathFinder.find_spec(part, places) if places is not None else None
        if found is None:
            remedy = "write its name without .py" if name.endswith(".py") else f"it is looked for from {folder}"
            raise Misuse(f"-m {name}", "a module that can be found", remedy)
        places = None if found.submodule_search_locations is None else list(found.submodule_search_locations)
