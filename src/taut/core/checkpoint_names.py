"""Names of checkpoint files, for all code that reads or writes them. Pure.

A run's checkpoints are in ``<run folder>/checkpoints/NUMBER/``: one file per worker, and ``manifest.json``, which is
written last. Without a manifest there is no checkpoint. Where workers are islands, the run of another part of the model
is in ``<run folder>/part-K``, and its checkpoints have the same numbers."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = "checkpoints"
MANIFEST = "manifest.json"
DIGEST_NBYTES = 32  # of blake2b
_PART = re.compile(r"worker-(\d{1,10})\.safetensors")


def part_name(rank: int) -> str:
    """Return the name of worker ``rank``'s file.

    >>> part_name(3), part_rank("worker-3.safetensors"), part_rank("manifest.json")
    ('worker-3.safetensors', 3, None)
    """
    return f"worker-{rank}.safetensors"


def part_rank(name: str) -> int | None:
    """Return the rank of the worker whose file this is; None for any other file."""
    match = _PART.fullmatch(name)
    return None if match is None else int(match[1])


def part_folder(run_dir: Path, part: int) -> Path:
    """Return the folder of the run of a part of the model; that of the first part is the run's own.

    >>> part_folder(Path("runs/a"), 0).as_posix(), part_folder(Path("runs/a"), 1).as_posix()
    ('runs/a', 'runs/a/part-1')
    """
    return run_dir / f"part-{part}" if part else run_dir


def checkpoint_of(first: Path, part: int) -> Path:
    """Return the folder of a part's checkpoint, from that of the first part.

    >>> checkpoint_of(Path("runs/a/checkpoints/3"), 1).as_posix()
    'runs/a/part-1/checkpoints/3'
    """
    return part_folder(first.parents[1], part) / FOLDER / first.name
