"""``taut runs``: the runs that were made, the newest last."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from taut.cli.options import Given, Json, with_flags
from taut.cli.output.console import notes, print_json, results
from taut.cli.output.format import SAME
from taut.supervisor.storage.store_reader import list_runs
from taut.supervisor.storage.store_writer import plain

if TYPE_CHECKING:
    from taut.comparison.report.columns import Column


@with_flags("runs_dir config")
def runs(given: Given, as_json: Json = False) -> None:
    """List the runs in the folder of runs, the newest last."""
    folder = given.settings().runs_dir
    found = sorted(list_runs(Path(folder)), key=lambda each: each.started)
    if as_json:
        print_json({"runs_dir": folder, "runs": [plain(each) for each in found]})
        return
    if not found:
        notes().print(f"no runs in {folder}")
        return
    from taut.cli.output.tables import fitting_table

    console = results()
    console.print(fitting_table([plain(each) for each in found], _columns(), console.width))


def _columns() -> list[Column]:
    from taut.comparison.report.columns import Column

    return [
        Column("run", lambda row: str(row["name"]), words=True),
        Column("started", lambda row: _time(row["started"]), 4, words=True),
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
