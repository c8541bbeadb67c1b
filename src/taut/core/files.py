"""Files that are whole or not there (written under another name, synced, and renamed; then the folder is synced, too),
and locks on files.

A crash at any moment leaves the old file or the new one, never a part of one. Nothing but the standard library, and
little of that: the process that writes checkpoints imports this module, and has to start soon."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap
    from typing import Self


class AtomicFile:
    """A file on its way to ``path``: it takes that name at the end of the ``with`` block, or with ``commit``. A block
    that raises leaves what was there. Every method may raise OSError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with AtomicFile(f"{folder}/a") as file:
    ...         file.write(b"te"); file.write(b"xt"); os.listdir(folder) == ["a"]
    ...     with open(f"{folder}/a") as found: os.listdir(folder), found.read()
    2
    2
    False
    (['a'], 'text')
    """

    def __init__(
        self, path: str | os.PathLike[str], mode: int = 0o666, written: str | os.PathLike[str] | None = None
    ) -> None:
        """``written``: the file that is to take the name, if there is one already."""
        self.path = os.fspath(path)
        folder, name = os.path.split(self.path)
        new = os.path.join(folder, f".{name}.{os.getpid()}-{os.urandom(3).hex()}.part")
        self._temporary = new if written is None else os.fspath(written)
        flags = os.O_WRONLY | (os.O_CREAT | os.O_EXCL if written is None else 0) | getattr(os, "O_BINARY", 0)
        self.file = open(os.open(self._temporary, flags, mode), "wb")  # noqa: SIM115 (closed by commit and discard)

    def write(self, data: bytes | memoryview | mmap.mmap) -> int:
        return self.file.write(data)

    def sync(self) -> None:
        """Put all that was written on the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def commit(self) -> None:
        """Give the complete file its name."""
        try:
            self.sync()
            self.file.close()
            os.replace(self._temporary, self.path)
        except BaseException:
            self.discard()
            raise
        sync_folder(os.path.dirname(self.path))

    def discard(self) -> None:
        """Remove the file; what was there under its name stays."""
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.discard()


def write_atomically(path: str | os.PathLike[str], data: bytes | memoryview | mmap.mmap, mode: int = 0o666) -> None:
    """Write ``data`` to ``path``, all of it or, if that fails (OSError), nothing."""
    with AtomicFile(path, mode) as file:
        file.write(data)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Put a folder's names on the disk, so that new ones survive a power cut. Windows opens no folder for that, and needs
    none."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_LOCKED_BYTE = 1 << 20  # Windows locks bytes, also against reading: take one far behind the text


def lock_file(file: int, wait: bool) -> None:
    """Lock an open file for this process until it is closed. Where another process has it: ``wait``, or raise OSError."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    import errno
    import msvcrt

    os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
    while True:
        try:
            msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            return
        except OSError as error:
            if not wait or error.errno != errno.EDEADLK:  # Windows itself waits for 10 s
                raise
