"""The contract of an engine: it starts a run's worker processes and tells how each ended.

``taut run --engine NAME`` chooses one; ``local`` is taut's own. An installed package adds another by an entry point of
the group ``taut.engines``: a class made from ``Engine``. The engine starts the script with the environment variables
that it is given; from there on the workers find their supervisor by themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from taut.config import Settings


@dataclass(frozen=True)
class Exit:
    """A worker process ended. ``clean``: with exit code 0. ``code`` is negative for a signal."""

    pid: int
    reason: str
    clean: bool
    index: int
    code: int


class Engine(ABC):
    """N processes of ``script``. Nothing is waited for: ``poll`` says what happened since the last call.

    Arguments:
        script, args: the training script (``-m NAME`` for a module) and its arguments.
        workers: how many processes.
        environment: variables to add to those of this process.
        log_dir: worker K's output goes to ``log_dir/worker-K.log``.
        threads: torch threads of each.
        start: how a process comes to be, where the engine knows several ways; None: as it likes.
        preload: modules to import once for all, where the engine can.
        devices: what ``--devices`` says, else None (``taut.engines.devices``).
        parts: of an island, the variables of each of its processes: workers K to K + len(parts) - 1 are one island.
        kernels: names of the kernels that the workers' codecs need, to be compiled before (``taut.engines.kernels``).

    Attributes that others read: ``logs``, one file for each worker; ``own_log``, what the engine itself has to say;
    ``log_starts``, how long each log was before, in a resumed run; ``pids``, process id to index of the workers that run,
    and ``started`` of all that were started; ``compiling``, how many kernels are compiled and of how many, meanwhile;
    ``remarks``, lines for the user about where the workers are.
    """

    name: ClassVar[str]
    own_settings: ClassVar[tuple[str, ...]] = ()  # names of settings that this engine takes, beside those of all
    kept_settings: ClassVar[tuple[str, ...]] = ()  # those of them that `taut resume` takes from the run

    def __init__(
        self,
        script: str | Path,
        args: Sequence[str],
        workers: int,
        environment: Mapping[str, str],
        *,
        log_dir: str | Path,
        threads: int = 1,
        start: str | None = None,
        preload: Sequence[str] = (),
        kernels: Sequence[str] = (),
        devices: str | None = None,
        parts: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self.script, self.args, self.environment = str(script), list(args), dict(environment)
        self.threads, self.start_by, self.preload, self.kernels = threads, start, tuple(preload), tuple(kernels)
        self.devices, self.parts = devices, parts
        self.logs = [Path(log_dir) / f"worker-{index}.log" for index in range(workers)]
        self.own_log = Path(log_dir) / f"{self.name}.log"
        self.log_starts = [log.stat().st_size if log.exists() else 0 for log in self.logs]
        self.pids: dict[int, int] = {}
        self.started: dict[int, int] = {}
        self.compiling: tuple[int, int] | None = None
        self.remarks: list[str] = []

    @classmethod
    def adapted(cls, settings: Settings, script: str | Path) -> Settings:
        """Return the settings with what this engine needs where nothing was set: an address that its workers reach, say.

        Asked before anything is made. Raise ``TautError`` where there can be no such run."""
        return settings

    @classmethod  # noqa: B027
    def check(cls, workers: int, devices: str | None) -> None:
        """Raise ``Misuse`` where ``workers`` workers cannot be started on ``devices``. Asked before anything is made."""

    @abstractmethod
    def start(self) -> None:
        """Start the workers, or begin to. Raise ``TautError`` where that cannot be."""

    @abstractmethod
    def poll(self, timeout_s: float = 0.0) -> list[Exit]:
        """Return the workers that ended since the last call; wait up to ``timeout_s`` for something to happen."""

    @property
    @abstractmethod
    def running(self) -> bool:
        """Return True until ``poll`` has reported the last worker's end."""

    @abstractmethod
    def terminate(self) -> None:
        """Ask every worker to end (SIGTERM)."""

    @abstractmethod
    def kill(self) -> None:
        """End every worker now (SIGKILL)."""

    @abstractmethod
    def close(self) -> None:
        """End the workers that still run, and let go of everything. Closing twice is harmless."""
