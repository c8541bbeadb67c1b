"""``taut runs``: the runs that were made, the newest last."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from rich.table import Table

from taut.cli.options import Config, Json, RunsDir, notes, plain, print_json, results
from taut.config import resolve
from taut.supervisor.store import RunSummary, list_runs


def runs(runs_dir: RunsDir = None, config: Config = None, as_json: Json = False) -> None:
    """List the runs in the folder of runs, the newest last."""
    folder = resolve({"runs_dir": runs_dir}, config_file=config).runs_dir
    found = sorted(list_runs(Path(folder)), key=lambda each: each.started)
    if as_json:
        print_json({"runs_dir": folder, "runs": [plain(each) for each in found]})
        return
    if not found:
        notes().print(f"no runs in {folder}")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in ("run", "started", "state", "workers", "time", "replicas", "model"):
        table.add_column(name, justify="right" if name in ("workers", "time") else "left", no_wrap=name == "run")
    for each in found:
        table.add_row(*_cells(each))
    results().print(table)


def _cells(each: RunSummary) -> tuple[str, ...]:
    started = f"{datetime.fromtimestamp(each.started):%Y-%m-%d %H:%M:%S}" if each.started else "-"
    took = "-" if each.ended is None else f"{each.ended - each.started:.1f} s"
    replicas = {True: "identical", False: "different", None: "-"}[each.identical]
    model = Path(each.model).name if each.model else "-"
    return each.name, started, each.state, str(each.workers), took, replicas, model
