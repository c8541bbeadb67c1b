"""The text of a batch file for Slurm: ``taut slurm`` writes it. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from taut.errors import Misuse

_TIME = re.compile(r"\d+|\d+:\d\d|\d+:\d\d:\d\d|\d+-\d+(:\d\d){0,2}")  # as sbatch takes it
_OPTION = re.compile(r"[a-z][a-z0-9-]*(=[^\s#]+)?")
EVERY = "5m"  # between checkpoints, from which a job that is requeued goes on, unless the user says otherwise
LAST_S = 60  # before the time limit: SIGTERM, by which the run is drained and its model saved


@dataclass(frozen=True)
class BatchJob:
    """A job of ``nodes`` hosts with ``workers_per_node`` tasks each, which run ``command``.

    ``settings``: variables for the run; ``options``: further options of sbatch, ``name`` or ``name=value``.
    """

    name: str
    command: Sequence[str]
    nodes: int = 1
    workers_per_node: int = 1
    time: str | None = None
    partition: str | None = None
    threads: int | None = None
    options: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def requeues(self) -> bool:
        """Return whether Slurm may start the job again, which then continues its run."""
        return "no-requeue" not in [option.removeprefix("--") for option in self.options]

    def text(self) -> str:
        """Return the file. Raise ``Misuse`` for an option that sbatch could not read."""
        lines = ["#!/bin/bash", *(f"#SBATCH --{option}" for option in self._options()), ""]
        settings = ({"TAUT_CHECKPOINT_EVERY": EVERY} if self.requeues else {}) | dict(self.settings)
        lines += [f"export {name}={shlex.quote(value)}" for name, value in settings.items()]
        # The run goes on when a worker dies, so that Slurm is told to leave the others alone.
        lines += [f"srun --kill-on-bad-exit=0 --wait=0 {shlex.join(self.command)}"]
        return "\n".join(lines) + "\n"

    def _options(self) -> list[str]:
        if self.time is not None and not _TIME.fullmatch(self.time):
            raise Misuse(
                f"--time {self.time!r}", "minutes, or HOURS:MINUTES:SECONDS, or DAYS-HOURS", "as in --time 2:00:00"
            )
        given = [f"job-name={self.name}", f"nodes={self.nodes}", f"ntasks-per-node={self.workers_per_node}"]
        given += [] if self.threads is None else [f"cpus-per-task={self.threads}"]
        given += [] if self.time is None else [f"time={self.time}", f"signal=TERM@{LAST_S}"]
        given += [] if self.partition is None else [f"partition={self.partition}"]
        given += ["requeue", "open-mode=append"] if self.requeues else []
        given += ["output=%x-%j.out", *(option.removeprefix("--") for option in self.options)]
        for option in given:
            if not _OPTION.fullmatch(option):
                raise Misuse(f"option {option!r}", "NAME or NAME=VALUE, without blanks", "as in --sbatch account=me")
        return given
