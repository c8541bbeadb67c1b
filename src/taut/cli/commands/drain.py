"""``taut drain``: end a run in order, or let one of its workers go."""

from __future__ import annotations

import getpass
import socket
from typing import TYPE_CHECKING, Annotated

import typer

from taut.cli.options import Given, Json, RunName, run_flag, with_flags
from taut.cli.output.console import notes, print_json
from taut.errors import Misuse
from taut.supervisor.storage.store_reader import find_run

if TYPE_CHECKING:
    from taut.supervisor.storage.previous_run import PreviousRun


@with_flags("runs_dir config")
def drain(
    run: RunName,
    worker: Annotated[
        str | None, typer.Argument(metavar="[WORKER]", help="The rank of one worker; else all.", show_default=False)
    ] = None,
    expel: Annotated[bool, run_flag("--expel", help="The worker goes at once: what it has not sent is lost.")] = False,
    *,
    given: Given,
    as_json: Json = False,
) -> None:
    """End a run in order, as Ctrl-C does where it was started: workers finish their step, exchange what is left,
    and the model is saved.

    With WORKER, that one alone: it hands over everything, its data is dealt to the others, and they go on.
    Whoever may read the run's folder may do this, from this machine or from another that shares it.
    """
    from taut.supervisor.control import Dismiss, DrainRun, order

    rank = None if worker is None else rank_of(worker)
    if expel and rank is None:
        raise Misuse("--expel without a worker", "taut drain RUN WORKER --expel", "`taut drain RUN` ends the whole run")
    found = going(given.settings().runs_dir, run)
    by = giver()
    if rank is None:
        answer = order(found, DrainRun(f"drained by {by}"))
    else:
        answer = order(found, Dismiss(rank, f"{'expelled' if expel else 'dismissed'} by {by}", expel))
    if as_json:
        print_json({"run": found.run, "worker": rank, "said": answer.said})
    else:
        notes().print(f"{found.run}: {answer.said}", markup=False)


def going(runs_dir: str, name: str) -> PreviousRun:
    """Return the address and the keys of the supervisor of a run that is not over, from the run's folder."""
    from taut.supervisor.storage.previous_run import read_previous_run

    record = find_run(runs_dir, name)
    summary = record.summary
    if summary.state in ("finished", "failed"):
        told = f"`taut show {summary.name}` tells how it ended"
        raise Misuse(f"run {summary.name!r}, which is over", "a run that is going", told)
    return read_previous_run(summary.path)


def rank_of(given: str) -> int:
    """Return the rank that a user has written."""
    if not given.isdecimal() or len(given) > 9:
        raise Misuse(f"worker {given!r}", "its rank, a whole number", "`taut show RUN` lists them")
    return int(given)


def giver() -> str:
    """Return who gives an order: the user, and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        user = "somebody"
    return f"{user} on {socket.gethostname()}"
