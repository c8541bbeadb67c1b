"""The supervisor of a run whose workers ``torchrun``, ``srun`` or ``mpirun`` started: a process beside rank 0's.

Rank 0's process starts it (``taut.engines.launchers.supervisor_process``), reads its offer from a pipe, and gives orders
on its standard input. It prints to rank 0's standard error and output what ``taut run`` prints without a terminal.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import msgspec

from taut.config import Settings, resolve
from taut.engines.launchers.rendezvous import Offer
from taut.engines.launchers.supervisor_process import DRAIN, ENDED, RESTART, Plan, Refusal
from taut.errors import Misuse, TautError

if TYPE_CHECKING:
    from taut.cli.output.display import Display
    from taut.supervisor.service import Supervisor
    from taut.supervisor.storage.run_lock import RunLock
    from taut.supervisor.view import ClusterView, Outcome

TICK_S = 0.05
CHECKPOINT_S = 15.0  # for a last checkpoint before torchrun restarts the workers
LOCKED_S = 10.0  # for the supervisor before a restart to end
EVERY = "1m"  # between checkpoints where the launcher restarts workers, unless the user says otherwise


def main() -> NoReturn:
    """Supervise a run for the process whose plan is on standard input, and exit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a launcher may pass Ctrl-C on to all processes: rank 0 says what to do
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=Plan)
    code = 1
    try:
        code = supervise(plan)
    except TautError as error:
        _answer(plan.report, Refusal(str(error), error.exit_code))
    except OSError as error:
        _answer(plan.report, Refusal(f"{error.filename or ''}: {error.strerror}", 1))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def supervise(plan: Plan) -> int:
    """Start the run, see it through, print how it ended, and return the exit code."""
    from taut.cli.commands.dashboard import opened, shown
    from taut.cli.output.console import notes, results, set_up_log
    from taut.cli.output.display import Display, show_outcome
    from taut.cli.reporting import reported

    settings = launch_settings(plan)
    set_up_log(settings.log)
    display = Display(notes())  # and never a table that is redrawn: rank 0's script prints beside it
    listening = opened(settings)
    marker = Marker(settings, plan)
    service = started(plan, settings, marker, display)
    name = service.run_dir.name
    service.start()
    _answer(plan.report, Offer(service.address, name, str(service.token_file.resolve())))
    os.close(plan.report)
    watch = Watch(plan, service, display)
    with shown(listening, service, service.run_dir, display), reported(settings.report_to, service.run_dir, display):
        outcome = watch.until_outcome()
    service.stop()
    if outcome.model is not None and not outcome.samples_undone:
        marker.remove()  # else, a job that is started again goes on
    if watch.restarts and outcome.model is None:
        display.note(f"{plan.command} restarts the workers: {name} goes on from its last checkpoint")
        return outcome.exit_code
    show_outcome(results(), name, outcome)
    if outcome.error:
        sys.stderr.write(f"error: {outcome.error}\n")
    return outcome.exit_code


def launch_settings(plan: Plan) -> Settings:
    """Return the run's settings, from the environment and ``taut.toml``: as many workers as the launcher started."""
    defaults: dict[str, object] = {} if plan.one_host else {"bind": "0.0.0.0"}
    if plan.host and not plan.one_host and plan.command == "torchrun":
        defaults["advertise"] = plan.host  # rank 0's host, by the name that the others know
    if plan.attempts:
        defaults["checkpoint_every"] = EVERY
    return resolve({"workers": plan.size}, defaults=defaults).without_islands().fitted()


class Marker:
    """A file in the folder of the runs that names the run of a launch, for the launcher's next attempt."""

    def __init__(self, settings: Settings, plan: Plan) -> None:
        self._wanted = plan.again and settings.checkpoint_every is not None
        safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in plan.key)[:100]
        self._path = Path(settings.runs_dir) / f".{plan.command}-{safe}"

    def write(self, run: str) -> None:
        if self._wanted:
            self._path.write_text(run + "\n", encoding="utf-8")

    def read(self) -> str:
        """Return the run's name; an empty text where there is none."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return self._path.read_text(encoding="utf-8").strip()
        return ""

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def started(plan: Plan, settings: Settings, marker: Marker, display: Display) -> Supervisor:
    """Return the run's supervisor, not started: of a run that goes on after a restart, or of a new one."""
    from taut.cli.run_folder import new_supervisor

    if plan.attempt and (run := marker.read()):
        try:
            return resumed(plan, settings, run, display)
        except Misuse as error:
            display.note(f"attempt {plan.attempt} of {plan.command} begins anew: {error}", "yellow")
    found = new_supervisor(settings, shlex.join(plan.started_by))
    named = replace(settings, sources={**settings.sources, "workers": plan.command})
    display.note(named.describe(), "dim")
    marker.write(found.run_dir.name)
    return found


def resumed(plan: Plan, settings: Settings, run: str, display: Display) -> Supervisor:
    """Return the supervisor of the last attempt's run, from its last checkpoint. Raise ``Misuse`` without one."""
    from taut.cli.commands.resume import continued, find_checkpoint, find_resumable
    from taut.cli.run_folder import supervisor_in
    from taut.supervisor.prepare import Origin

    record = find_resumable(settings.runs_dir, run)
    lock = _taken(record.summary.path)
    try:
        found = find_checkpoint(find_resumable(settings.runs_dir, run), lock)
        chosen = continued(settings, found.manifest)
        origin = Origin(shlex.join(plan.started_by), resume=found, lock=lock)
        service = supervisor_in(record.summary.path, chosen, origin)
    except BaseException:
        lock.release()
        raise
    manifest = found.manifest
    display.note(f"attempt {plan.attempt}: continuing {run} from checkpoint {manifest.number}, step {manifest.steps}")
    return service


def _taken(folder: Path) -> RunLock:
    """Return the lock of the run; its last supervisor may need a moment to end."""
    from taut.supervisor.storage.run_lock import RunLock

    deadline_s = time.monotonic() + LOCKED_S
    while True:
        try:
            return RunLock.take(folder)
        except Misuse:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(TICK_S)


class Watch:
    """Sees the run through: orders of rank 0's process, its death, and processes that do not come."""

    def __init__(self, plan: Plan, service: Supervisor, display: Display) -> None:
        self._plan, self._service, self._display = plan, service, display
        self._orders: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._began_s = time.monotonic()
        self._ends_s: float | None = None  # when the run fails, unless a checkpoint is written before
        self._seen = 0
        self._ended = False  # rank 0's process
        signal.signal(signal.SIGTERM, self._terminated)
        threading.Thread(target=self._read, name="orders", daemon=True).start()

    @property
    def restarts(self) -> bool:
        """Return whether the run ended for the launcher's next attempt."""
        return self._ends_s is not None

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        self._orders.put(self._last_word)

    @property
    def _last_word(self) -> str:
        return RESTART if self._plan.attempt < self._plan.attempts else DRAIN

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            self._orders.put(line.decode("ascii", "replace").strip())
        self._orders.put(ENDED)

    def until_outcome(self) -> Outcome:
        """Show the run until it has an outcome."""
        while (outcome := self._service.wait(TICK_S)) is None:
            view = self._service.view()
            self._display.update(view)
            self._obey(view)
            self._judge(view)
        self._display.update(self._service.view())
        return outcome

    def _obey(self, view: ClusterView) -> None:
        if os.getppid() != self._plan.pid:
            self._orders.put(ENDED)
        while not self._orders.empty():
            word = self._orders.get()
            if word == ENDED and not self._ended:
                self._ended = True
                self._service.exited(self._plan.pid, "killed by a signal, or gone without a word", clean=False)
                word = "" if self._plan.survives else self._last_word
            if word == DRAIN:
                self._service.drain(f"{self._plan.command} was told to end")
            elif word == RESTART and self._ends_s is None:
                self._cut(view)

    def _cut(self, view: ClusterView) -> None:
        """Begin a last checkpoint; then the workers end, and the launcher starts others."""
        self._ends_s = time.monotonic() + (CHECKPOINT_S if view.state == "training" else 0.0)
        self._seen = max((event.number for event in view.events_since(0)), default=0)
        self._service.checkpoint()

    def _judge(self, view: ClusterView) -> None:
        waited_s = time.monotonic() - self._began_s
        if self._ends_s is not None:
            written = any(event.kind == "checkpoint" for event in view.events_since(self._seen))
            if written or time.monotonic() > self._ends_s:
                self._service.fail(f"{self._plan.command} restarts the workers")
        elif view.state == "waiting" and waited_s > self._plan.limit_s:
            self._service.fail(missing(self._plan, len(view.workers), self._service.address))


def missing(plan: Plan, came: int, address: str) -> str:
    """Say that processes of the launch have not come.

    >>> missing(Plan("srun", 4, 1, 1, True, "", 300.0, "", 0, 0, True, True, []), 1, "tcp://10.0.0.7:4000")[:84]
    'srun started 4 processes, and only 1 of them joined the run at tcp://10.0.0.7:4000 w'
    """
    return (
        f"{plan.command} started {plan.size} processes, and only {came} of them joined the run at {address} within "
        f"{plan.limit_s:.0f} s. Do all of them call taut.join, and reach this host? TAUT_PATIENCE_S waits longer; "
        "TAUT_LAUNCHER=none trains them as separate runs"
    )


def _answer(report: int, message: Offer | Refusal) -> None:
    with contextlib.suppress(OSError):  # rank 0 is gone, or has its answer
        os.write(report, msgspec.json.encode(message) + b"\n")
