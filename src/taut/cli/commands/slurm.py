"""``taut slurm``: write a batch file that trains a script on the hosts of a Slurm cluster."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

from taut.cli.launch import script_of
from taut.cli.options import Given, Module, Script, ScriptArgs, output_flag, run_flag, with_flags
from taut.cli.output.console import notes
from taut.engines.launchers.sbatch import BatchJob
from taut.errors import Misuse, StorageFailed
from taut.worker.joining.main_script import module_of

STANDARD_OUTPUT = "-"


@with_flags(
    "clients strategy topology codec finish seed scale_lr threads checkpoint_every keep_checkpoints validate_every "
    "stop_early advertise transport link name runs_dir log"
)
def slurm(
    *,
    script: Script,
    args: ScriptArgs = None,
    module: Module = False,
    nodes: Annotated[int, run_flag(help="How many hosts.", min=1)] = 1,
    workers_per_node: Annotated[int, run_flag(help="How many workers on each.", min=1)] = 1,
    time: Annotated[
        str | None,
        run_flag(metavar="TIME", help="The job's time limit, as sbatch takes it; the model is saved a minute before."),
    ] = None,
    partition: Annotated[str | None, run_flag(metavar="NAME", help="The partition.")] = None,
    sbatch: Annotated[
        list[str] | None,
        run_flag(metavar="NAME[=VALUE]", help="A further option of sbatch, as account=me; may be repeated."),
    ] = None,
    given: Given,
    out: Annotated[
        str | None,
        output_flag("-o", "--output", metavar="FILE", help="The file to write; default: SCRIPT.sbatch; -: print."),
    ] = None,
    force: Annotated[bool, output_flag("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a batch file that trains SCRIPT on the hosts of a Slurm cluster.

    Nothing is submitted: `sbatch FILE` does that. The job's tasks find each other by themselves. Where the folder of
    the runs is one that all hosts see, nothing secret leaves it.
    """
    chosen = script_of(script, module)
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", module_of(chosen) or chosen.stem)
    # Checked here, so that a mistake shows now and not when the job starts, hours later.
    settings = Given({**given.flags, "workers": nodes * workers_per_node}).settings().without_islands().fitted()
    named = {name: str(value) for name, value in given.flags.items() if value is not None}
    command = [sys.executable, *(["-m", module_of(chosen)] if module_of(chosen) else [str(chosen)]), *(args or [])]
    text = BatchJob(
        name=stem,
        command=command,
        nodes=nodes,
        workers_per_node=workers_per_node,
        time=time,
        partition=partition,
        threads=settings.threads if settings.sources["threads"] == "flag" else None,
        options=sbatch or [],
        settings={f"TAUT_{name.upper()}": value for name, value in named.items()},
    ).text()
    if out == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return
    path = Path(out or f"{stem}.sbatch")
    if path.exists() and not force:
        raise Misuse(f"file {str(path)!r}", "one that is not there yet", "--force replaces it, -o FILE writes another")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageFailed(f"{path} could not be written: {error.strerror}") from error
    notes().print(f"wrote {path}; to submit it: sbatch {path}", markup=False)
