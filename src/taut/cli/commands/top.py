"""``taut top``: the display of a run that goes, in another terminal."""

from __future__ import annotations

import threading

from taut.cli.launch import Interrupts
from taut.cli.options import Given, RunName, with_flags
from taut.cli.output.console import notes
from taut.cli.output.display import Display
from taut.errors import Misuse
from taut.supervisor.storage.store_follower import StoreFollower
from taut.supervisor.storage.store_reader import find_run
from taut.supervisor.storage.stored_view import StoredView

EVERY_S = 0.5


@with_flags("runs_dir config")
def top(run: RunName = "latest", *, given: Given) -> None:
    """Watch a run that goes, as `taut run` shows it where it was started. Ctrl-C ends the watching, not the run."""
    summary = find_run(given.settings().runs_dir, run).summary
    if summary.state != "running":
        raise Misuse(f"run {summary.name!r}, which is {summary.state}", "a run that goes", f"taut show {summary.name}")
    follower, view = StoreFollower(summary.path), StoredView()
    tick = threading.Event()
    with Interrupts() as interrupts, Display(notes()) as display:
        while not interrupts.count:
            fresh = follower.read()
            display.update(view.after(fresh))
            if fresh.summary.state != "running":
                break
            tick.wait(EVERY_S)
    if not interrupts.count:
        notes().print(f"{summary.name} has {fresh.summary.state}: taut show {summary.name}", markup=False)
