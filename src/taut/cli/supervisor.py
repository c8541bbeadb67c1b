"""``taut supervisor``: the supervisor alone, for workers that join from elsewhere."""

from __future__ import annotations

import shlex
import sys

import typer

from taut.cli.display import Display, show_outcome
from taut.cli.figures import outcome_record
from taut.cli.launch import conduct
from taut.cli.log import set_up_log
from taut.cli.options import (
    Advertise,
    Bind,
    Codec,
    Config,
    Finish,
    Json,
    Log,
    Name,
    Port,
    Quiet,
    RunsDir,
    Seed,
    Strategy,
    Topology,
    Workers,
    notes,
    print_json,
    results,
)
from taut.cli.run_folder import new_supervisor
from taut.config import resolve

EVERYWHERE = "0.0.0.0"


def supervisor(
    *,
    workers: Workers = None,
    strategy: Strategy = None,
    topology: Topology = None,
    codec: Codec = None,
    finish: Finish = None,
    seed: Seed = None,
    bind: Bind = None,
    port: Port = None,
    advertise: Advertise = None,
    name: Name = None,
    runs_dir: RunsDir = None,
    config: Config = None,
    log: Log = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Wait for workers that join from this or other machines, and see the run through.

    It says what to type there. Training starts when --workers of them are here; more may join later. It
    listens on all addresses unless --bind says otherwise; only holders of the token file get in.
    """
    flags = {
        "workers": workers,
        "strategy": strategy,
        "topology": topology,
        "codec": codec,
        "finish": finish,
        "seed": seed,
        "bind": bind,
        "port": port,
        "advertise": advertise,
        "name": name,
        "runs_dir": runs_dir,
        "log": log,
    }
    settings = resolve(flags, config_file=config, defaults={"bind": EVERYWHERE}).fitted()
    set_up_log(settings.log)
    run, folder, service = new_supervisor(settings, shlex.join(sys.argv))
    service.start()
    display = Display(notes(), quiet=quiet or as_json)
    # These lines are needed to go on, so that they are said with --quiet and --json too.
    display.note(settings.describe(), "dim")
    display.note(f"supervisor: {service.address}")
    display.note(f"token file: {service.token_file} (copy it; whoever has it may join)")
    join = f"taut worker --join {service.address} --token-file {shlex.quote(str(service.token_file))} SCRIPT"
    display.note(f"on every machine: {join}")
    ended = conduct(service, None, display)
    if ended.outcome is not None:
        if as_json:
            print_json(outcome_record(run, str(folder), settings.shared(), ended.outcome))
        elif not quiet:
            show_outcome(results(), run, ended.outcome)
        if ended.outcome.error:
            sys.stderr.write(f"error: {ended.outcome.error}\n")
    raise typer.Exit(ended.exit_code)
