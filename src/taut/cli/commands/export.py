"""``taut export``: a run's tables as CSV, JSON lines or Parquet files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from taut.cli.options import Given, Json, RunName, output_flag, with_flags
from taut.cli.output.console import notes, print_json
from taut.errors import Misuse
from taut.supervisor.storage.store_reader import find_run

_HERE = "-"


@with_flags("runs_dir config")
def export(
    run: RunName = "latest",
    *,
    given: Given,
    form: Annotated[str, output_flag("--format", "-f", metavar="csv|jsonl|parquet", help="Kind of the files.")] = "csv",
    table: Annotated[
        str | None, output_flag(metavar="NAME[,NAME]", help="These tables; default: all.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        output_flag("--output", "-o", metavar="FOLDER", help="Where to; default: RUN-export. - is standard output."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a run's tables into files: workers, statistics, progress, metrics (what scripts logged) and events.

    A run that goes is written as it is now. docs/store.md describes the columns.
    """
    from taut.analysis.export import FORMATS
    from taut.analysis.export import export as write
    from taut.analysis.tables import STORED, read_table

    if form not in FORMATS:
        raise Misuse(f"--format {form}", f"one of {', '.join(FORMATS)}", "--format csv")
    names = list(STORED) if table is None else table.split(",")
    found = find_run(given.settings().runs_dir, run).summary
    if str(output) == _HERE:
        if len(names) != 1:
            raise Misuse(f"{len(names)} tables to standard output", "one", f"--table {names[0]} --output -")
        sys.stdout.buffer.write(FORMATS[form](read_table(found.path, names[0])))
        sys.stdout.flush()
        return
    written = write(found.path, output or Path(f"{found.name}-export"), form, names)
    if as_json:
        print_json({"run": found.name, "files": [str(path) for path in written]})
    else:
        for path in written:
            typer.echo(path)
        notes().print(f"{len(written)} tables of {found.name}", markup=False)
