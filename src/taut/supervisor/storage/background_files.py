"""Writes the run's large files (models, manifests of checkpoints) in threads beside the supervisor's loop."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from taut.core import handover
from taut.core.checkpoint_names import FOLDER
from taut.errors import TautError
from taut.supervisor.checkpoints.folder import Launch, drop, write_manifest
from taut.supervisor.control import ThreadCalls
from taut.supervisor.run.actions import Action, DropCheckpoint, Save, SaveCheckpoint, SaveIndex, TakeModel
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.storage.model_file import prepare_to_write, take_model, write_index, write_model

KEEP_CHECKPOINTS = 3
SPARE = 24  # importing torch and writing both files of a model takes a few at a time
WAIT_S = 10.0  # for others to close descriptors
LOOK_S = 0.05


class SpareDescriptors:
    """File descriptors in reserve, so that files can be written when connections have taken all others.

    >>> spare = SpareDescriptors(number=3)
    >>> with spare.used():
    ...     len(spare)
    0
    >>> len(spare); spare.close()
    3
    """

    def __init__(self, number: int = SPARE) -> None:
        self._number = number
        self._held: list[int] = []
        self._hold()

    def __len__(self) -> int:
        return len(self._held)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Free the descriptors for files that are opened within the block; take them back afterwards. If other
        threads took them first, wait until so many can be opened, ``WAIT_S`` at most."""
        deadline = time.monotonic() + WAIT_S
        self._hold()
        while len(self._held) < self._number and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            self._hold()
        self.close()
        try:
            yield
        finally:
            self._hold()

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop())

    def _hold(self) -> None:
        with suppress(OSError):  # no more are free
            while len(self._held) < self._number:
                self._held.append(os.open(os.devnull, os.O_RDONLY))


class BackgroundFiles:
    """Writes each file in a thread of its own, and reports the result to ``cluster`` by a call. ``settings`` and
    ``launch`` go into the manifests of checkpoints."""

    def __init__(
        self, run_dir: Path, settings: Mapping[str, object], launch: Launch, cluster: Cluster, calls: ThreadCalls
    ) -> None:
        self._run_dir, self._checkpoints = run_dir, run_dir.absolute() / FOLDER
        self._cluster, self._calls = cluster, calls
        self._of_run = {"run": cluster.plan.run, "settings": settings, "launch": launch}
        self._kept = int(str(settings.get("keep_checkpoints") or KEEP_CHECKPOINTS))
        self._spare = SpareDescriptors()
        self._writer: threading.Thread | None = None
        self._importer: threading.Thread | None = None
        self._completer: threading.Thread | None = None  # of the last checkpoint

    def write(self, action: Save | TakeModel | SaveIndex | SaveCheckpoint | DropCheckpoint) -> None:
        match action:
            case Save(data, name):
                self._write(lambda: write_model(self._run_dir, data, name))
            case TakeModel(rank, nbytes, checksum, name):
                path = handover.path_of(self._run_dir / handover.FOLDER, rank)
                self._write(lambda: take_model(self._run_dir, path, nbytes, checksum, name))
            case SaveIndex(index):
                self._write(lambda: write_index(self._run_dir, index))
            case SaveCheckpoint(number, manifest):
                whole, told = {**manifest, **self._of_run}, partial(self._cluster.checkpointed, number)
                self._completer = self._beside(lambda: write_manifest(self._checkpoints, whole, self._kept), told)
            case DropCheckpoint(number):
                drop(self._checkpoints, number)

    def expect_model(self) -> None:
        """Import what saving a model takes, beside the loop: a second or two, in which the workers drain."""

        def with_descriptors() -> None:
            with self._spare.used():
                prepare_to_write()

        self._importer = threading.Thread(target=with_descriptors, name="importer", daemon=True)
        self._importer.start()

    def close(self) -> None:
        """Wait until all is written: a file is never left half-written."""
        for thread in (self._importer, self._writer, self._completer):
            if thread is not None:
                thread.join()
        self._spare.close()

    def clear(self) -> None:
        """Remove what no worker needs when the run is over."""
        handover.remove_folder(self._run_dir)

    def _write(self, write: Callable[[], Path]) -> None:
        def with_descriptors() -> str:
            if self._importer is not None:
                self._importer.join()
            with self._spare.used():
                return str(write())

        self._writer = self._beside(with_descriptors, self._cluster.saved)

    def _beside(self, write: Callable[[], str], told: Callable[[str, str, float], list[Action]]) -> threading.Thread:
        """Write beside the loop: a model imports torch, a disk may be slow, and neither must be taken for silence."""

        def work() -> None:
            text, error = _tried(write)
            self._calls.give(lambda now: told(text, error, now))

        thread = threading.Thread(target=work, name="writer", daemon=True)
        thread.start()
        return thread


def _tried(write: Callable[[], str]) -> tuple[str, str]:
    """Return the result of writing, and the error text: of any exception, or the run would wait for ever."""
    try:
        return write(), ""
    except TautError as failure:
        return "", str(failure)[:4000]
    except Exception as failure:
        return "", f"it could not be written: {type(failure).__name__}: {failure}"[:4000]
