"""Names of checkpoint files, for all code that reads or writes them. Pure.

A run's checkpoints are in ``<run folder>/checkpoints/NUMBER/``: one file per worker, and ``manifest.json``, which is
written last. Without a manifest there is no checkpoint."""

from __future__ import annotations

import re

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
