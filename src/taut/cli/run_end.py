"""The end of a launch, and its report to the user."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from taut.cli.logs import failures
from taut.cli.output.console import print_json, results
from taut.cli.output.display import Display, show_outcome
from taut.cli.output.format import outcome_record
from taut.early_sigint import INTERRUPTED
from taut.engines.base import Engine, Exit
from taut.errors import Misuse, RunFailed

if TYPE_CHECKING:
    from taut.supervisor.view import Outcome


@dataclass
class RunEnd:
    """The end of a launch. ``exits`` are the local workers' ends, in order."""

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
        if self.interrupted:
            return INTERRUPTED
        code = int(not self.superseded) if self.outcome is None else self.outcome.exit_code
        gone = {row.pid for row in self.outcome.workers.values() if row.state == "gone"} if self.outcome else set()
        if any(not each.clean and not (each.code < 0 and each.pid in gone) for each in self.late):
            code = 1  # a worker that was gone before may be killed now: the run went on without it
        return Misuse.exit_code if code == 1 and self.misuse else code


def report_failures(ended: RunEnd, engine: Engine, display: Display) -> None:
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


def unseen_text(ended: RunEnd) -> str:
    """Return where the output is that was not shown; nothing where there is none.

    >>> unseen_text(RunEnd(unseen=[Path("runs/a/worker-1.log"), Path("runs/a/worker-2.log")]))
    'output of the other workers: runs/a/worker-1.log, worker-2.log'
    """
    if not ended.unseen:
        return ""
    first, *others = ended.unseen
    names = [str(first), *(path.name for path in others[:3]), *(["..."] if len(others) > 3 else [])]
    return "output of the other workers: " + ", ".join(names)


def report_end(
    ended: RunEnd,
    folder: Path,
    settings: Mapping[str, object],
    display: Display,
    *,
    as_json: bool,
    quiet: bool,
    told: bool = False,
) -> NoReturn:
    """Print how the run ended, and exit. ``told``: the script itself has told its mistake."""
    outcome = ended.outcome
    if outcome is not None:
        if as_json:
            print_json(outcome_record(folder.name, str(folder), settings, outcome))
        elif not quiet and not told:
            show_outcome(results(), folder.name, outcome)
        if not display.quiet and ended.unseen:
            display.note(unseen_text(ended), "dim")
        if outcome.error and not told:
            sys.stderr.write(f"error: {outcome.error}\n")
    raise typer.Exit(ended.exit_code)


def check_joined(ended: RunEnd, script: Path) -> None:
    """Raise RunFailed for a script that ended without joining the run: nothing was trained."""
    if ended.outcome is None and not ended.interrupted and not ended.superseded:
        if any(not each.clean for each in ended.exits):
            raise RunFailed(f"{script} failed before it joined the run")
        raise RunFailed(
            f"{script} ended without joining the run, so nothing was trained; "
            "it must call taut.join(model, optimizer) or taut.join_vector(array), see `taut run --help`"
        )
