"""The supervisor's process of a ``Trainer``: it conducts the run, and its workers are actors of the same cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from taut.cli.launch import conduct
from taut.cli.output.format import outcome_record
from taut.cli.run_end import RunEnd
from taut.cli.run_folder import new_supervisor
from taut.config import Settings, WorkerEnvironment
from taut.engines.ray.engine import RayEngine
from taut.errors import RunFailed
from taut.ray.reports import Reports

RUNS = "taut-runs"


@dataclass(frozen=True)
class Job:
    """What a ``Trainer`` trains, as it was checked where it was made. ``script``: its file, also of a function; ``cwd``:
    the working folder there."""

    settings: Settings
    script: str
    args: list[str] = field(default_factory=list)
    function: Callable[[], object] | None = None
    cwd: str = ""
    runtime_env: dict[str, Any] | None = None


def supervise(job: Job) -> dict[str, Any]:
    """Conduct the run to its end, and report to the Ray Train context of this process.

    Return the outcome as ``taut run --json`` prints it, and the last ``metrics``. Raise ``RunFailed`` where that would
    end with another exit code than 0."""
    import ray.train

    from taut.codecs.registry import kernels_of
    from taut.strategies.compatibility import codecs_in_use
    from taut.strategies.phases import parse_schedule

    storage = ray.train.get_context().get_storage()
    local = storage.storage_filesystem.type_name == "local"
    results = Path(storage.experiment_fs_path) if local else None
    if os.path.isdir(job.cwd):
        os.chdir(job.cwd)  # Ray Train has put this process elsewhere
    settings = RayEngine.adapted(job.settings, job.script)
    settings = settings if results is None else replace(settings, runs_dir=str(results / RUNS))
    supervisor = new_supervisor(settings, f"taut.ray.Trainer({job.script})")
    folder = supervisor.run_dir
    environment = WorkerEnvironment(supervisor.address, token_file=str(supervisor.token_file), bind=settings.bind)
    engine = RayEngine(
        job.script,
        job.args,
        settings.workers,
        environment.variables(),
        log_dir=folder,
        threads=settings.threads_per_worker,
        kernels=kernels_of(codecs_in_use(parse_schedule(settings.strategy), settings.topology, [settings.codec])),
        function=job.function,
        runtime_env=job.runtime_env,
        **{name: getattr(settings, name) for name in RayEngine.own_settings},
    )
    supervisor.start()
    reports = Reports(folder, results)
    ended = conduct(supervisor, engine, reports)
    if ended.outcome is not None:
        reports.finish(ended.outcome)
    if ended.exit_code or ended.outcome is None:
        raise RunFailed(failure_text(ended, engine))
    return outcome_record(folder.name, str(folder), settings.shared(), ended.outcome) | {"metrics": reports.metrics}


def failure_text(ended: RunEnd, engine: RayEngine) -> str:
    """Say why the run failed, with the end of the output of a worker that failed."""
    outcome = ended.outcome
    reasons = [] if outcome is None else [outcome.error, *outcome.failures]
    failed = next((each for each in ended.exits if not each.clean and each.code > 0), None)
    if failed is not None:
        log = engine.logs[failed.index]
        lines = log.read_text(errors="replace").splitlines()[-20:] if log.exists() else []
        reasons.append("\n".join([f"worker {failed.index} ended with {failed.reason}:", *lines]))
    if outcome is None and failed is None:
        reasons.append("the workers ended without joining the run; each must call taut.join(model, optimizer)")
    return "; ".join(reason for reason in reasons if reason)
