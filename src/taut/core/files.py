"""A file that is whole or not there: written beside its name, synced, and renamed; then its folder is synced, too."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_beside(final: Path, fill: Callable[[BinaryIO], object]) -> Path:
    """A complete, synced temporary file beside ``final``, for ``os.replace``. What writing raises leaves none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     final = Path(folder) / "a"
    ...     _ = os.replace(write_beside(final, lambda file: file.write(b"text")), final)
    ...     sync_folder(final.parent)
    ...     os.listdir(folder), final.read_bytes()
    (['a'], b'text')
    """
    temporary = final.with_name(f".{final.name}.{os.getpid()}.part")
    try:
        with open(temporary, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def sync_folder(folder: Path) -> None:
    """So that new names in it survive a power cut, too. Windows opens no folder for that, and needs none."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
