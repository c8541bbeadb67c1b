"""``taut resume``: continue a run from its last good checkpoint, with the same or another number of workers."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.cli.commands.dashboard import opened, shown
from taut.cli.commands.run import LocalRun, see_through
from taut.cli.commands.supervisor import EVERYWHERE
from taut.cli.launch import check_script, conduct, say_how_to_join
from taut.cli.logs import wanted_logs
from taut.cli.options import Given, Json, Logs, Quiet, RunName, Verbose, with_flags
from taut.cli.output.console import notes, set_up_log
from taut.cli.output.display import Display
from taut.cli.reporting import reported
from taut.cli.run_end import report_end
from taut.cli.run_folder import supervisor_in
from taut.config import AGREED, Settings
from taut.config.hosts import with_hosts
from taut.core.checkpoint_names import FOLDER
from taut.errors import Misuse, StorageFailed
from taut.plugins import ENGINES
from taut.supervisor.storage.store_reader import DamagedRun, find_run, set_aside, without_store
from taut.supervisor.storage.store_writer import FILE as STORE

if TYPE_CHECKING:
    from taut.supervisor.checkpoints.folder import Found, Manifest
    from taut.supervisor.storage.run_lock import RunLock
    from taut.supervisor.storage.store_reader import StoredRun


@with_flags(
    "workers island threads devices checkpoint_every keep_checkpoints validate_every stop_early "
    "bind port advertise link dashboard report_to hosts same_file "
    "ssh_command ssh_python ray_address ray_resources ray_placement ray_wait_s runs_dir config log"
)
def resume(
    run: RunName,
    *,
    given: Given,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    logs: Logs = None,
) -> None:
    """Continue RUN from its last good checkpoint.

    Script, arguments and settings are those that it was started with; --workers may be another number. A
    checkpoint that is damaged is named, and the one before it is taken. A run whose workers joined from elsewhere
    waits for them again.
    """
    from taut.supervisor.checkpoints.folder import drop_newer
    from taut.supervisor.prepare import Origin
    from taut.supervisor.run.steering import steered_text
    from taut.supervisor.storage.run_lock import RunLock

    wanted = with_hosts(given.settings())
    record = find_resumable(wanted.runs_dir, run)
    shown_logs = wanted_logs(logs, verbose=verbose, quiet=quiet or as_json)
    display = Display(notes(), quiet=quiet or as_json)
    with ExitStack() as undo:
        lock = RunLock.take(record.summary.path)
        undo.callback(lock.release)
        # Looked for under the lock: another one that resumed the run meanwhile has removed the older checkpoints.
        found = find_checkpoint(find_resumable(wanted.runs_dir, record.summary.name), lock)
        for text in found.damaged:
            sys.stderr.write(f"warning: {text}\n")
        launch = found.manifest.launch
        settings = continued(wanted, found.manifest)
        set_up_log(settings.log)
        if launch.script:
            check_script(Path(launch.script), launch.cwd)
            settings = ENGINES.find(settings.engine).adapted(settings, launch.script)
        elif wanted.sources["bind"] == "default":
            settings = replace(settings, bind=EVERYWHERE)  # workers come from elsewhere, as they did before
        listening = opened(settings)
        if record.summary.state == "unreadable":
            kept = f"what it had of statistics and events is in {set_aside(record.summary.path)}"
            sys.stderr.write(f"warning: {record.summary.error}: the checkpoint has all that is needed; {kept}\n")
        drop_newer(found)
        service = supervisor_in(record.summary.path, settings, Origin(shlex.join(sys.argv), resume=found, lock=lock))
        undo.pop_all()
    kept = steered_text(found.manifest.rate, found.manifest.slack)
    where = f"checkpoint {found.manifest.number}, step {found.manifest.steps}"
    display.note(f"continuing {record.summary.name} from {where}{f', with {kept} as before' if kept else ''}")
    if not launch.script:
        service.start()
        say_how_to_join(service, display)
        folder = record.summary.path
        with shown(listening, service, folder, display), reported(settings.report_to, folder, display):
            ended = conduct(service, None, display)
        report_end(ended, folder, service.settings, display, as_json=as_json, quiet=quiet)
    if launch.cwd and Path(launch.cwd).is_dir():
        os.chdir(launch.cwd)  # the script's arguments may name files from there
    local = LocalRun(
        settings,
        Path(launch.script),
        launch.args,
        start=launch.start,
        command=shlex.join(sys.argv),
        listening=listening,
        resumed=service,
        checkpoint=found,
    )
    see_through(local, Path(launch.script), display, as_json=as_json, quiet=quiet, logs=shown_logs)


def find_resumable(runs_dir: str, name: str) -> StoredRun:
    """Return the run of that name, also where its store is damaged, if it has a checkpoint and no model yet."""
    try:
        return find_run(runs_dir, name)
    except DamagedRun as error:
        model = error.path / "model.safetensors"
        if not (error.path / FOLDER).is_dir():
            raise
        if model.exists():  # whether there is anything left to train, only the store would know
            remedy = f"its store is damaged, but its model is {model}; move that away to continue from the checkpoint"
            raise Misuse(f"run {error.path.name!r}", "one that is not finished", remedy) from None
        return without_store(error.path, f"{error.path / STORE} is damaged")


def find_checkpoint(record: StoredRun, lock: RunLock) -> Found:
    """Return the run's last good checkpoint; ``Misuse`` where the run cannot be continued."""
    from taut.supervisor.checkpoints.folder import last_good
    from taut.supervisor.standby import Standby

    summary, folder = record.summary, record.summary.path / FOLDER
    # No process of this machine conducts it: that is what the lock says, whatever has the previous one's number now.
    if summary.state == "running" and not (lock.sure and summary.host == socket.gethostname()):
        sys.stderr.write(f"looking whether its supervisor on {summary.host} still lives, which takes some seconds\n")
        if Standby(summary.path).beats():
            remedy = f"`taut show {summary.name}` shows it, which is on {summary.host}"
            raise Misuse(f"run {summary.name!r}", "one that is not going any more", remedy)
    if summary.state == "finished" and not (record.outcome or {}).get("samples_undone"):
        raise Misuse(f"run {summary.name!r}", "one that is not finished", f"its model is {summary.model}")
    try:
        found = last_good(folder)
    except StorageFailed as error:
        raise Misuse(f"run {summary.name!r}", "a checkpoint that is whole", f"there is none: {error}") from None
    if found is None:
        remedy = "start it anew, with --checkpoint-every 5m"
        raise Misuse(f"run {summary.name!r}", f"a run with checkpoints in {folder}", remedy)
    return found


def continued(given: Settings, manifest: Manifest) -> Settings:
    """Return the settings that the run had, with those ``given`` now. Of a strategy in phases, only what is left."""
    from taut.strategies.phases import PhaseSchedule, parse_schedule

    kept = manifest.settings
    phases = parse_schedule(kept["strategy"]).phases
    values: dict[str, Any] = {key: kept.get(key) for key in AGREED if key != "workers"}
    values["strategy"] = str(PhaseSchedule(phases[min(manifest.phase, len(phases) - 1) :]))
    sources = dict(given.sources) | dict.fromkeys(kept.get("explicit", ()), "checkpoint")
    if given.sources["island"] != "flag":
        given = replace(given, island=manifest.parts)
    if given.sources["workers"] == "flag":
        given = given.grouped()
    for key in ("workers", "checkpoint_every", "keep_checkpoints", "validate_every", "stop_early", "link"):
        if given.sources[key] != "flag" and kept.get(key) is not None:
            values[key], sources[key] = kept[key], "checkpoint"
    launch = manifest.launch
    for key in ("threads", "devices"):
        if given.sources[key] != "flag":
            values[key] = getattr(launch, key)
    engine = given.engine if given.hosts else launch.engine
    kept_own = ENGINES.find(engine).kept_settings
    values |= {key: launch.own[key] for key in kept_own if key in launch.own and given.sources[key] == "default"}
    fitted = replace(given, **values, preload=tuple(launch.preload), engine=engine, sources=sources).fitted()
    chosen = {key: kept[key] for key in ("topology", "codec", "finish") if kept.get(key) is not None}
    return replace(fitted, **chosen)
