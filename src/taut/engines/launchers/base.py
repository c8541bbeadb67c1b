"""The contract of a launcher: what its environment says of a process, and where the processes of a launch meet.

``taut.join`` asks each launcher in turn. An installed package adds another by an entry point of the group
``taut.launchers``: a class made from ``Launcher``. ``detect`` is pure: it reads a mapping.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from taut.errors import Misuse

if TYPE_CHECKING:
    from taut.engines.launchers.enter import EnteredLaunch
    from taut.engines.launchers.rendezvous import Rendezvous


@dataclass(frozen=True)
class Launch:
    """A process as its launcher describes it.

    ``command``: what the user typed (``srun``); ``rank`` of ``size`` processes; ``local_rank`` of ``local_size`` on this
    host; ``key``: the same for all processes of this launch and for no other; ``host`` and ``port``: of rank 0, where the
    launcher names them; ``attempt``: how often the launcher has restarted the processes, of ``attempts`` that it may;
    ``survives``: the launcher leaves the others alone when one process fails; ``job``: the same for all attempts, where
    the launcher may start all processes again after their end.
    """

    command: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    key: str
    host: str = ""
    port: int = 0
    agent_store: bool = False  # torchrun's own process serves the store at host:port, else rank 0 does
    attempt: int = 0
    attempts: int = 0
    survives: bool = False
    job: str = ""

    @property
    def one_host(self) -> bool:
        """Return whether all processes are on this host."""
        return self.local_size >= self.size

    @property
    def restarts(self) -> bool:
        """Return whether the launcher would start the processes again if one of them failed."""
        return self.attempt < self.attempts


class Launcher(ABC):
    """A launcher. Its class has a ``name``, which ``TAUT_LAUNCHER`` and ``taut.join(launcher=...)`` choose."""

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def detect(cls, environ: Mapping[str, str]) -> Launch | None:
        """Return what ``environ`` says of a process that this launcher started; None where it did not."""

    @classmethod
    @abstractmethod
    def rendezvous(cls, launch: Launch, folder: str) -> Rendezvous:
        """Return the place where rank 0 tells the other processes of the run; ``folder`` holds the runs."""

    @classmethod
    def entered(cls, launch: Launch) -> EnteredLaunch:
        """Return this process's part in the launch."""
        from taut.engines.launchers.enter import EnteredLaunch

        return EnteredLaunch(cls, launch)

    @classmethod
    def here(cls) -> Launch | None:
        """Return what this process's environment says."""
        return cls.detect(os.environ)


def number(environ: Mapping[str, str], *names: str) -> int | None:
    """Return the whole number in the first of these variables that is set; None where none is.

    >>> number({"SLURM_NTASKS": "4"}, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    4
    """
    for name in names:
        text = environ.get(name, "").strip()
        if text.isdecimal():
            return int(text)
        if text:
            raise Misuse(f"{name} = {text!r}", "a whole number, as its launcher sets it", "TAUT_LAUNCHER=none ignores it")
    return None


def checked(launch: Launch) -> Launch:
    """Return ``launch``, or raise ``Misuse`` where its numbers cannot be true."""
    if not 0 <= launch.rank < max(1, launch.size) or not 0 <= launch.local_rank < max(1, launch.local_size):
        given = f"{launch.command}: rank {launch.rank} of {launch.size}, {launch.local_rank} of {launch.local_size} here"
        raise Misuse(given, "ranks below the number of processes", "TAUT_LAUNCHER=none ignores the launcher")
    return launch
