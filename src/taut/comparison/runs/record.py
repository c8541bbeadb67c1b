"""The record of one run, real or simulated: the same figures for both, as one JSON file."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from taut.comparison.runs.history import Moment, last_loss
from taut.comparison.runs.job import Job
from taut.comparison.runs.matrix import Cell
from taut.core.files import write_atomically
from taut.core.messages import Statistics
from taut.core.versions import package_versions
from taut.supervisor.metrics import cluster_rate, compression, time_split, total

PACKAGES = ("taut", "torch", "numpy", "numba", "pyzmq", "msgspec")


@dataclass(frozen=True)
class RunRecord:
    """``time_split``: of each worker, by rank: seconds by kind of work, and what none of them claims as ``other``.
    ``loss``: of the training, over the last tenth of the time. ``scores`` and ``distances``: by time, where they were
    measured on the way (simulations). ``wall_s`` is virtual where ``simulated``."""

    key: str
    strategy: str
    topology: str
    codec: str
    workers: int
    seed: int
    simulated: bool = False
    state: Literal["finished", "failed"] = "finished"
    error: str = ""
    command: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    wall_s: float = 0.0
    samples: int = 0
    samples_per_s: float = 0.0
    bytes_sent: int = 0
    compression: float | None = None
    staleness: float = 0.0
    consensus_distance: float | None = None
    score: float | None = None
    better: Literal["higher", "lower"] = "higher"
    loss: float | None = None
    identical: bool | None = None
    time_split: tuple[dict[str, float], ...] = ()
    history: tuple[Moment, ...] = ()
    scores: tuple[tuple[float, float], ...] = ()
    distances: tuple[tuple[float, float], ...] = ()
    staleness_samples: tuple[float, ...] = ()

    @property
    def finished(self) -> bool:
        return self.state == "finished"

    def to_json(self) -> str:
        """Write the record as JSON.

        >>> record = RunRecord("k", "sync", "ring", "dense", workers=2, seed=0, wall_s=1.5)
        >>> RunRecord.from_json(record.to_json()) == record
        True
        """
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n"

    @classmethod
    def from_json(cls, text: str) -> RunRecord:
        """Read a record; ``msgspec.MsgspecError`` where the text is none."""
        return msgspec.json.decode(text, type=cls)


def failed(job: Job, cell: Cell, error: str) -> RunRecord:
    """Return the record of a run that failed with this ``error``."""
    return RunRecord(**of_cell(job, cell), state="failed", error=error.strip() or "it ended without a word")


def of_cell(job: Job, cell: Cell) -> dict[str, Any]:
    """Return the fields that are known of a run before it is made."""
    return {
        "key": job.key(cell),
        **{name: getattr(cell, name) for name in ("strategy", "topology", "codec", "workers", "seed")},
        "simulated": job.simulated,
        "command": job.command(cell),
        "settings": dict(cell.resolved),
        "versions": package_versions(*PACKAGES) | {"system": platform.platform()},
    }


def of_workers(workers: Iterable[Statistics], history: tuple[Moment, ...]) -> dict[str, Any]:
    """Return the figures of all workers together, from their last statistics."""
    rows = list(workers)
    together = total(rows)
    return {
        **{name: getattr(together, name) for name in ("samples", "bytes_sent", "staleness")},
        "samples_per_s": cluster_rate(rows),
        "compression": compression(together),
        "time_split": tuple(time_split(each) for each in rows),
        "history": history,
        "loss": last_loss(history),
    }


def kept(folder: Path, name: str, key: str) -> RunRecord | None:
    """Return the finished run of that key in the folder; None without one: a run that failed is tried again."""
    try:
        record = RunRecord.from_json((folder / "runs" / f"{name}.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, UnicodeDecodeError, msgspec.MsgspecError):
        return None
    return record if record.key == key and record.finished else None


def keep(folder: Path, name: str, record: RunRecord) -> None:
    """Write a record into the folder."""
    write(folder / "runs" / f"{name}.json", record.to_json().encode())


def write(path: Path, data: bytes) -> None:
    """Write ``data``, whole or not at all; the folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)


def versions_of(records: Iterable[RunRecord]) -> dict[str, list[str]]:
    """Return the versions that the runs had of each package."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for package, version in record.versions.items():
            found.setdefault(package, {})[version] = None
    return {package: list(some) for package, some in found.items()}
