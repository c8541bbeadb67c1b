"""Job files of a few small files."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from taut.cli.packing.job_file import write_job
from taut.cli.packing.manifest import JobFile, Manifest

CONTENTS = {"train.py": b"import helpers.one\n", "helpers/one.py": b"", "words.txt": b"abc" * 100}


def manifest_of(contents: Mapping[str, bytes], **changes: object) -> Manifest:
    files = [JobFile(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in sorted(contents.items())]
    python = sys.version.split()[0]
    made = Manifest(1, next(iter(contents)), [], files, {}, {}, "0.1.0", python)
    return msgspec.structs.replace(made, **changes)


def job(
    path: Path, contents: Mapping[str, bytes] = CONTENTS, sign: Callable[[bytes], bytes] | None = None, **changes: object
) -> Path:
    """Write a job; ``changes``: to its manifest, right or wrong."""
    write_job(path, manifest_of(contents, **changes), contents, sign)
    return path
