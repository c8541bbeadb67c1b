"""What all that have to do with checkpoints agree on: how the files are called. Pure.

A run's checkpoints are in ``<run folder>/checkpoints/NUMBER/``: one file per worker, and ``manifest.json``, which is
written last. Without a manifest there is no checkpoint.
"""

from __future__ import annotations

import re

FOLDER = "checkpoints"
MANIFEST = "manifest.json"
DIGEST_NBYTES = 32  # of blake2b
_PART = re.compile(r"worker-(\d{1,10})\.safetensors")


def part_name(rank: int) -> str:
    """The file of worker ``rank``.

    >>> part_name(3), part_rank("worker-3.safetensors"), part_rank("manifest.json")
    ('worker-3.safetensors', 3, None)
    """
    return f"worker-{rank}.safetensors"


def part_rank(name: str) -> int | None:
    """Whose file this is, None if it is nobody's."""
    match = _PART.fullmatch(name)
    return None if match is None else int(match[1])
