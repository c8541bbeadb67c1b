"""``taut plot``: loss, speed and time split of a run as PNG or SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from taut.cli.options import Given, RunName, output_flag, with_flags
from taut.supervisor.storage.store_reader import find_run


@with_flags("runs_dir config")
def plot(
    run: RunName = "latest",
    *,
    given: Given,
    output: Annotated[
        Path | None,
        output_flag("--output", "-o", metavar="FILE", help="A .png, .svg or .pdf file; default: RUN.png here."),
    ] = None,
) -> None:
    """Draw a run: the loss and the speed of each worker, what the script logged, and what the time went into."""
    from taut.analysis.figures import write_figure

    record = find_run(given.settings().runs_dir, run)
    path = output or Path(f"{record.summary.name}.png")
    write_figure(record, path)
    typer.echo(path)
