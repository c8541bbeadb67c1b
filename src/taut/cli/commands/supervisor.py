"""``taut supervisor``: the supervisor alone, for workers that join from elsewhere."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from taut.cli.commands.dashboard import opened, reopened, shown
from taut.cli.discovery import announced, check_announce
from taut.cli.launch import conduct, say_how_to_join
from taut.cli.options import Given, Json, Quiet, complete_run, network_flag, run_flag, with_flags
from taut.cli.output.console import notes, set_up_log
from taut.cli.output.display import Display
from taut.cli.reporting import reported
from taut.cli.run_end import report_end
from taut.cli.run_folder import new_supervisor
from taut.config import AGREED, Settings
from taut.errors import Misuse, Superseded
from taut.supervisor.storage.store_reader import find_run
from taut.transport.keys import read_keys_file

if TYPE_CHECKING:
    from taut.supervisor.service import Supervisor

EVERYWHERE = "0.0.0.0"


@with_flags(
    "workers clients strategy topology codec finish seed scale_lr checkpoint_every keep_checkpoints validate_every "
    "stop_early bind port advertise transport dashboard report_to name runs_dir config log"
)
def supervisor(
    *,
    given: Given,
    recover: Annotated[
        str | None,
        run_flag(metavar="RUN", help="Come back for a run whose supervisor died.", autocompletion=complete_run),
    ] = None,
    standby: Annotated[
        str | None,
        run_flag(
            metavar="RUN", help="Wait beside a run; take over when its supervisor dies.", autocompletion=complete_run
        ),
    ] = None,
    force: Annotated[
        bool, run_flag("--force", help="With --recover: take over also from a supervisor that is well.")
    ] = False,
    announce: Annotated[
        str | None,
        network_flag(
            metavar="[DIR]", help="Let workers find it: in a folder that they see, else (taut[lan]) in the local network."
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        network_flag(metavar="FILE", help="The run's keys, made before by `taut token keys`; default: new ones."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Wait for workers that join from this or other machines, and see the run through.

    It says what to type there. Training starts when --workers of them are here; more may join later. It
    listens on all addresses unless --bind says otherwise; only holders of the token file get in.

    --recover and --standby need the run's folder, on this machine or on a file system that both share. The
    workers are told where the supervisor is now.
    """
    display = Display(notes(), quiet=quiet or as_json)
    check_announce(announce)
    if recover is not None or standby is not None:
        settings = given.settings()
        _check_alone({**given.flags, "keys": keys}, recover, standby)
        set_up_log(settings.log)
        if recover is not None and not force:
            check_silent(settings.runs_dir, recover)
        listening = opened(settings)
        found = _returned(settings, recover, standby, display)
        if found is None:
            return
        service, listening = found, reopened(listening, settings, found.run_dir)
    else:
        if force:
            raise Misuse("--force", "--recover RUN beside it", "leave it out")
        settings = given.settings(bind=EVERYWHERE).without_islands().fitted()
        set_up_log(settings.log)
        made = read_keys_file(keys) if keys is not None else None
        listening = opened(settings)
        service = new_supervisor(settings, shlex.join(sys.argv), keys=made)
        display.note(settings.describe(), "dim")
    service.start()
    say_how_to_join(service, display)
    folder = Path(settings.runs_dir) / service.run_dir.name
    bind = settings.bind if settings.sources["bind"] != "default" else EVERYWHERE
    reporting = reported(settings.report_to, folder, display)
    with announced(service, announce, bind, display), shown(listening, service, folder, display), reporting:
        ended = conduct(service, None, display)
    report_end(ended, folder, service.settings, display, as_json=as_json, quiet=quiet)


def _check_alone(flags: Mapping[str, object], recover: str | None, standby: str | None) -> None:
    """Refuse settings beside ``--recover`` and ``--standby``: the run has its own."""
    if recover is not None and standby is not None:
        raise Misuse("--recover and --standby", "one of them")
    flag = "--recover" if recover is not None else "--standby"
    for key in ("workers", *AGREED, "name", "keys"):
        if flags[key] is not None:
            named = "--" + key.replace("_", "-")
            raise Misuse(f"{named} beside {flag}", f"{flag} alone: the run has its settings", f"drop {named}")


def check_silent(runs_dir: str, run: str) -> None:
    """Refuse to recover a run whose supervisor still writes to the run's store: ``Misuse`` names the process."""
    from taut.supervisor.standby import Standby

    summary = find_run(runs_dir, run).summary
    watch = Standby(summary.path)
    if watch.look() == "living":
        sys.stderr.write(f"looking whether the supervisor of {summary.name} still lives, which takes some seconds\n")
        if watch.beats():
            host, pid = watch.holder
            well = f"process {pid} on {host} conducts it and is well"
            remedy = f"`taut drain {summary.name}` ends it in order, --force takes over all the same"
            raise Misuse(f"--recover {summary.name}", "a run whose supervisor is gone", f"{well}: {remedy}")


def _returned(settings: Settings, recover: str | None, standby: str | None, display: Display) -> Supervisor | None:
    """Return the supervisor of a run that has lost its own; None where a standby is not needed any more."""
    from taut.supervisor.service import Supervisor
    from taut.supervisor.standby import LOOK_S
    from taut.supervisor.storage.previous_run import check_own

    record = find_run(settings.runs_dir, recover or standby or "")
    folder, flagged, run = record.summary.path, settings.sources, record.summary.name
    bind = settings.bind if flagged["bind"] != "default" else None
    port = settings.port if flagged["port"] != "default" else None
    if standby is None:
        return Supervisor.recover(folder, bind=bind, port=port, advertise=settings.advertise)
    check_own(folder)  # later would be too late to say so
    display.note(f"standing by for {run}; Ctrl-C to stop")
    # Its port may be held by one that is only stopped: any free one will do, the workers are told.
    port = 0 if port is None and bind is None else port
    told = ""
    while (term := _gone(folder)) is not None:
        if not told:
            display.note(f"the supervisor of {run} is gone: taking over", "yellow")
        try:
            return Supervisor.recover(folder, bind=bind, port=port, advertise=settings.advertise, term=term)
        except Superseded as why:
            if str(why) != told:
                told = str(why)
                display.note(f"standing by again: {told}")
            time.sleep(LOOK_S)  # who is about to resume the run takes its time
    display.note(f"{run} is over: nothing to take over")
    return None


def _gone(folder: Path) -> int | None:
    """Wait until the run's supervisor is gone, and return its term; None where the run is over."""
    from taut.supervisor.standby import LOOK_S, Standby

    watch = Standby(folder)
    while (seen := watch.look()) != "gone":
        if seen == "over":
            return None
        time.sleep(LOOK_S)
    return watch.term
