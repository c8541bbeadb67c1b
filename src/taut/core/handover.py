"""Handing a model to a supervisor on the same machine: as a file, in a folder that the supervisor made.

The supervisor names the folder, with a random mark that it wrote there. A worker writes to no folder without that mark,
and under no name but its rank; so no path comes from a worker, and none of another machine is written to.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import shutil
import stat
import zlib
from collections.abc import Sequence
from pathlib import Path

FOLDER, _MARK = "handover", "mark"
SETTING = "handover"  # that workers are told: the folder, and the mark
_PIECE_NBYTES = 1 << 20  # written at a time: in the cache still for its checksum


def name_folder(run_dir: Path) -> list[str]:
    """Return the folder of a run, which may not be there yet, and its mark: that of an earlier supervisor, which workers
    know, or a new one."""
    folder = run_dir / FOLDER
    try:
        return [str(folder), (folder / _MARK).read_text()]
    except (OSError, ValueError):
        return [str(folder), secrets.token_hex(16)]


def make_folder(folder: str, mark: str) -> None:
    """Make the folder, for this user alone. Where it cannot be written, workers send the model instead."""
    with contextlib.suppress(OSError):
        Path(folder).mkdir(mode=0o700, exist_ok=True)
        Path(folder, _MARK).write_text(mark)


def remove_folder(run_dir: Path) -> None:
    """Remove the folder, with what was not taken from it."""
    shutil.rmtree(run_dir / FOLDER, ignore_errors=True)


def is_here(told: list[str]) -> bool:
    """Return whether this process sees the folder that the supervisor told, and owns it."""
    if len(told) != 2:
        return False
    folder, mark = Path(told[0]), told[1]
    try:
        kept = os.lstat(folder)
        mine = stat.S_ISDIR(kept.st_mode) and (not hasattr(os, "geteuid") or kept.st_uid == os.geteuid())
        return mine and (folder / _MARK).read_text() == mark
    except (OSError, ValueError):
        return False


def path_of(folder: Path, rank: int) -> Path:
    """Return the path of worker ``rank``'s model in the folder."""
    return folder / f"{rank}.safetensors"


def put(folder: Path, rank: int, views: Sequence[bytes | memoryview]) -> tuple[int, int]:
    """Write worker ``rank``'s model; return its size and checksum. The file is complete when it has its name."""
    part, nbytes, checksum = folder / f"{rank}.part", 0, 0
    try:
        with part.open("wb") as file:
            for view in views:
                for start in range(0, len(view), _PIECE_NBYTES):
                    piece = memoryview(view)[start : start + _PIECE_NBYTES]
                    nbytes, checksum = nbytes + file.write(piece), zlib.crc32(piece, checksum)
        os.replace(part, path_of(folder, rank))
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return nbytes, checksum


def flaw(path: Path, nbytes: int, checksum: int) -> str:
    """Return why the file is not a plain one of this size and checksum; empty: it is."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size != nbytes or not nbytes:
            return f"a model of {found.st_size} bytes was handed over: expected {nbytes}"
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            same = zlib.crc32(data) == checksum
            return "" if same else "the model that was handed over is damaged: it has another checksum"
    except OSError as error:
        return f"the model that was handed over cannot be read: {error}"
