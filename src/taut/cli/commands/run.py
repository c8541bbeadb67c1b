"""``taut run``: a supervisor and N workers of a script, on this machine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from taut.cli.commands.dashboard import opened, shown
from taut.cli.islands import part_supervisors
from taut.cli.launch import conduct, script_of
from taut.cli.logs import Wanted, wanted_logs
from taut.cli.options import (
    Given,
    Json,
    Logs,
    Module,
    Quiet,
    RequireSignature,
    Script,
    ScriptArgs,
    Start,
    Verbose,
    with_flags,
)
from taut.cli.output.console import notes, set_up_log
from taut.cli.output.display import Display
from taut.cli.packing.unpack import opened_job, settings_of, unpacked
from taut.cli.reporting import reported
from taut.cli.run_end import RunEnd, check_joined, report_end, report_failures
from taut.cli.run_folder import new_supervisor
from taut.config import Settings, WorkerEnvironment
from taut.config.hosts import with_hosts
from taut.engines.local import STARTS
from taut.errors import Misuse
from taut.plugins import ENGINES
from taut.specs import did_you_mean
from taut.worker.joining.main_script import module_of

if TYPE_CHECKING:
    from taut.dashboard.server import Listening
    from taut.supervisor.checkpoints.folder import Found, Launch
    from taut.supervisor.service import Supervisor


@with_flags(
    "workers clients island strategy topology codec finish seed scale_lr threads devices preload start engine "
    "checkpoint_every keep_checkpoints validate_every stop_early "
    "bind port advertise transport link dashboard report_to hosts same_file ssh_command "
    "ssh_python ray_address ray_resources ray_placement ray_wait_s name runs_dir config log"
)
def run(
    *,
    script: Script,
    args: ScriptArgs = None,
    module: Module = False,
    given: Given,
    start: Start = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    logs: Logs = None,
    require_signature: RequireSignature = None,
) -> None:
    """Train SCRIPT with several workers on this machine.

    SCRIPT calls taut.join(model, optimizer); everything after it goes to it. Worker 0's output is shown; each worker's
    is in worker-K.log in the run's folder. Ctrl-C drains the run and saves the model; a second Ctrl-C stops it.
    """
    refuse_launcher()
    job = opened_job(script, require_signature, module=module, quiet=quiet or as_json)
    script = script_of(script, module)
    check_start(start)
    shown_logs = wanted_logs(logs, verbose=verbose, quiet=quiet or as_json)
    settings = with_hosts(settings_of(given, job)).grouped().fitted()
    if job is not None:
        script, args = unpacked(job, settings), [*job.manifest.args, *(args or [])]
    set_up_log(settings.log)
    listening = opened(settings)
    launch = LocalRun(settings, script, args or [], start=start, command=shlex.join(sys.argv), listening=listening)
    display = Display(notes(), quiet=quiet or as_json)
    if not display.quiet:
        display.note(settings.describe(), "dim")
    see_through(launch, script, display, as_json=as_json, quiet=quiet, logs=shown_logs)


def refuse_launcher() -> None:
    """Refuse to be one of several processes of another launcher: each would start workers of its own."""
    from taut.worker.joining.launched import found_launch

    launched = found_launch("auto")
    if launched is not None:
        given = f"`taut run` as one of {launched.launch.size} processes of {launched.launch.command}"
        raise Misuse(
            given, "SCRIPT itself there", f"type: {launched.launch.command} ... python SCRIPT; or one `taut run`"
        )


def see_through(
    launch: LocalRun, script: Path, display: Display, *, as_json: bool, quiet: bool, logs: Wanted
) -> NoReturn:
    """Train to the end, print how the run ended, and exit."""
    ended = launch.conduct(display, logs)
    report_failures(ended, launch.engine, display)
    told = ended.misuse and (ended.outcome is None or ended.outcome.model is None)
    if not told:
        check_joined(ended, script)
    settings = launch.supervisor.settings
    report_end(ended, launch.folder, settings, display, as_json=as_json, quiet=quiet, told=told)


def launch_of(settings: Settings, script: Path, args: list[str], start: str | None) -> Launch:
    """Record how the workers are started, for ``taut resume``."""
    from taut.supervisor.checkpoints.folder import Launch

    named = str(script if module_of(script) else script.absolute())
    return Launch(
        script=named,
        args=list(args),
        cwd=str(Path.cwd()),
        start=start,
        threads=settings.threads,
        preload=list(settings.preload),
        engine=settings.engine,
        devices=settings.devices,
        own={name: getattr(settings, name) for name in ENGINES.find(settings.engine).kept_settings},
    )


def check_start(start: str | None) -> None:
    """Refuse a ``--start`` that is not known."""
    if start is not None and start not in STARTS:
        raise Misuse(f"--start = {start!r}", "one of " + ", ".join(STARTS), did_you_mean(start, STARTS))


class LocalRun:
    """A run whose supervisor is in this process and whose workers are its children."""

    def __init__(
        self,
        settings: Settings,
        script: Path,
        args: list[str],
        *,
        start: str | None = None,
        command: str = "",
        folder_flag: str = "",  # a flag by which the script is told the run's folder
        listening: Listening | None = None,  # for the dashboard
        resumed: Supervisor | None = None,  # instead of a new run's
        checkpoint: Found | None = None,  # that the run continues
    ) -> None:
        from taut.codecs.registry import kernels_of
        from taut.strategies.compatibility import codecs_in_use, crowding
        from taut.strategies.phases import parse_schedule

        engine = ENGINES.find(settings.engine)
        settings = engine.adapted(settings, script) if resumed is None else settings
        self.settings, self._listening = settings, listening
        engine.check(settings.processes, settings.devices)
        self.supervisor = resumed or new_supervisor(settings, command, launch_of(settings, script, args, start))
        self.name = self.supervisor.run_dir.name
        self.folder = resumed.run_dir if resumed else Path(settings.runs_dir) / self.name
        self.parts = part_supervisors(settings, self.folder, command, checkpoint)
        environments = [_environment(settings, each).variables() for each in (self.supervisor, *self.parts)]
        self.engine = engine(
            script,
            [*args, *([folder_flag, str(self.folder)] if folder_flag else [])],
            settings.processes,
            environments[0],
            log_dir=self.folder,
            threads=settings.threads_per_worker,
            start=start,
            preload=settings.preload,
            devices=settings.devices,
            parts=environments if self.parts else (),
            kernels=kernels_of(codecs_in_use(parse_schedule(settings.strategy), settings.topology, [settings.codec])),
            **{name: getattr(settings, name) for name in engine.own_settings},
        )
        crowded = crowding(settings.strategy, settings.topology, settings.workers)
        self.engine.remarks += [crowded] if crowded else []

    def conduct(self, display: Display, logs: Wanted = None) -> RunEnd:
        """Train to the end; ``logs`` says whose output is shown."""
        for each in (self.supervisor, *self.parts):
            each.start()
        reporting = reported(self.settings.report_to, self.folder, display)
        with shown(self._listening, self.supervisor, self.folder, display), reporting:
            return conduct(self.supervisor, self.engine, display, logs, self.parts)


def _environment(settings: Settings, supervisor: Supervisor) -> WorkerEnvironment:
    """Return what the workers of a supervisor are told."""
    return WorkerEnvironment(
        supervisor=supervisor.address,
        token_file=str(supervisor.token_file.resolve()),
        bind=settings.bind,
        advertise=settings.advertise,
    )
