"""``taut runs``: the runs that were made, the newest last."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from taut.cli.options import Given, Json, with_flags
from taut.cli.output.console import notes, print_json, results
from taut.cli.output.format import SAME
from taut.errors import Misuse
from taut.quantities import parse_duration
from taut.specs import did_you_mean
from taut.supervisor.storage.store_reader import StoredState, list_runs
from taut.supervisor.storage.store_writer import plain

if TYPE_CHECKING:
    from taut.comparison.report.columns import Column

STATES: tuple[str, ...] = get_args(StoredState)


@with_flags("runs_dir config")
def runs(
    given: Given,
    as_json: Json = False,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE[,STATE]", help=f"Only runs in these states: {', '.join(STATES)}.", show_default=False
        ),
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs of this strategy.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only runs that began in the last 30min, 12h, 2d ...", show_default=False),
    ] = None,
    last: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only the N newest runs.", show_default=False)
    ] = None,
) -> None:
    """List the runs in the folder of runs, the newest last."""
    folder = given.settings().runs_dir
    states = _states(state)
    earliest = 0.0 if since is None else time.time() - parse_duration(since, f"--since {since}")
    found = sorted(list_runs(Path(folder)), key=lambda each: each.started)
    found = [each for each in found if each.state in states and each.started >= earliest]
    if strategy is not None:
        found = [each for each in found if each.strategy.partition(":")[0] == strategy.partition(":")[0]]
    found = found[-last:] if last else found
    if as_json:
        print_json({"runs_dir": folder, "runs": [plain(each) for each in found]})
        return
    if not found:
        chosen = " like that" if state or since or strategy else ""
        notes().print(f"no runs{chosen} in {folder}")
        return
    from taut.cli.output.tables import fitting_table

    console = results()
    console.print(fitting_table([plain(each) for each in found], _columns(), console.width))


def _states(given: str | None) -> tuple[str, ...]:
    if given is None:
        return STATES
    names = tuple(given.split(","))
    for name in names:
        if name not in STATES:
            raise Misuse(f"--state {name}", f"one of {', '.join(STATES)}", did_you_mean(name, STATES))
    return names


def _columns() -> list[Column]:
    from taut.comparison.report.columns import Column

    return [
        Column("run", lambda row: str(row["name"]), words=True),
        Column("started", lambda row: _time(row["started"]), 4, words=True),
        Column("strategy", lambda row: str(row["strategy"]) or "-", 4, words=True),
        Column("state", lambda row: str(row["state"]), words=True),
        Column("workers", lambda row: str(row["workers"]), 2),
        Column("trained", lambda row: _seconds(row["wall_s"]), 1),
        Column("in all", lambda row: _seconds(row["total_s"]), 3),
        Column("replicas", lambda row: SAME[row["identical"]], 2, words=True),
        Column("model", lambda row: Path(row["model"]).name if row["model"] else "-", 5, words=True),
    ]


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}" if at else "-"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
