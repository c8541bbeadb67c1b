"""The manifest of a job file: its settings, packages, file names and checksums, each checked before it is used.

A job file comes from somebody else. No path in it leaves the folder that it is unpacked into, all sizes are bounded, and
the manifest has the checksum of every file.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from taut.config import AGREED
from taut.errors import Misuse

SUFFIX = ".taut"
MANIFEST_NBYTES = 4 << 20
JOB_NBYTES = 1 << 30  # of all files, unpacked
MOST_FILES = 10_000
PACKED_SETTINGS = (*AGREED, "threads")  # those of `taut pack` that a job takes along

Text = Annotated[str, Meta(max_length=4096)]
Short = Annotated[str, Meta(max_length=200)]
_PART = re.compile(r"[^/\\:*?\"<>|]{1,100}")


class JobFile(Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a job."""

    path: Short
    nbytes: Annotated[int, Meta(ge=0, le=JOB_NBYTES)]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """``script`` is one of ``files``, run with ``args``. ``bytecode``: the mark of the Python whose byte code the files
    hold, else empty: source. ``machine``: the suffix of those that are machine code, if some are. ``requirements``:
    packages and versions that it was packed with."""

    format: Literal[1]
    script: Short
    args: Annotated[list[Text], Meta(max_length=1000)]
    files: Annotated[list[JobFile], Meta(min_length=1, max_length=MOST_FILES)]
    requirements: Annotated[dict[Short, Short], Meta(max_length=500)]
    settings: Annotated[dict[Short, Text | int | bool], Meta(max_length=100)]
    taut: Short
    python: Short
    bytecode: Annotated[str, Meta(pattern="^([0-9a-f]{8})?$")] = ""
    machine: Short = ""

    @property
    def kind(self) -> str:
        """Return what the files are, in words."""
        code = "machine code and byte code" if self.machine else "byte code"
        return f"{code} of Python {self.python}" if self.bytecode else "source"

    def encoded(self) -> bytes:
        """Return the manifest as it is in the job file: the checksum and the signature are of these bytes."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


def checksum(encoded: bytes) -> str:
    """Return the checksum of a job: of its manifest, which has those of its files."""
    return hashlib.sha256(encoded).hexdigest()


def decoded(data: bytes, name: str) -> Manifest:
    """Return the manifest in ``data``. Raises ``Misuse`` for one that cannot be used; ``name``: of the job file."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise broken(name, f"its manifest: {error}") from None
    folded: set[str] = set()
    for file in manifest.files:
        check_path(file.path, name)
        folded.add(file.path.casefold())  # some systems do not tell A from a
    folders = {"/".join(path.split("/")[:count]) for path in folded for count in range(1, path.count("/") + 1)}
    if len(folded) < len(manifest.files) or folded & folders:
        raise broken(name, "two of its files have the same path")
    if manifest.script not in {file.path for file in manifest.files}:
        raise broken(name, f"it does not have its script, {manifest.script!r}")
    if sum(file.nbytes for file in manifest.files) > JOB_NBYTES:
        raise broken(name, f"its files have more than {JOB_NBYTES:,} bytes")
    if unknown := set(manifest.settings) - set(PACKED_SETTINGS):
        raise broken(name, f"it sets {', '.join(sorted(unknown))}, which is not a job's to set")
    return manifest


def check_path(path: str, name: str) -> None:
    """Refuse a path that could lead out of the folder of the job, or that some system takes for another.

    >>> check_path("package/module.py", "job.taut")
    >>> check_path("../module.py", "job.taut")
    Traceback (most recent call last):
    taut.errors.Misuse: job.taut: expected a job file that `taut pack` wrote; it has a file named '../module.py'
    """
    parts = path.split("/")
    plain = all(_PART.fullmatch(part) and part.isprintable() and part == part.strip().rstrip(".") for part in parts)
    if not plain or len(parts) > 16:
        raise broken(name, f"it has a file named {path!r}")


def broken(name: str, why: str) -> Misuse:
    """Return the error for a job file that cannot be used."""
    return Misuse(name, "a job file that `taut pack` wrote", why)
