"""A lock on a file in the run's folder, so that one process at a time supervises a run.

The operating system releases the lock when the process ends, however it ends: none is ever left behind. The file names
the holder. A supervisor that takes over from one that is only stopped does so by the term (``store_writer.py``), without
the lock, and gets it as soon as the other is gone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
from pathlib import Path
from typing import Literal, NamedTuple

from taut.core.files import lock_file
from taut.errors import Misuse, StorageFailed

FILE = "lock"
_ELSEWHERE = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)

Doing = Literal["preparing", "supervising"]


class Holder(NamedTuple):
    """The holder of the lock. ``preparing``: the run's store does not name it yet."""

    pid: int
    host: str
    doing: Doing


class RunLock:
    """The lock. ``taken``: this process has it; ``sure``: no other has (some file systems know no locks).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, second = RunLock(Path(folder)), RunLock(Path(folder))
    ...     tried = first.try_take(), second.try_take(), second.holder().pid == os.getpid()
    ...     first.release()
    ...     tried, second.try_take(), second.release()
    ((True, False, True), True, None)
    """

    def __init__(self, run_dir: Path) -> None:
        """Open the lock's file. Raise ``Misuse`` if this user may not write to the folder, else ``StorageFailed``."""
        self.run_dir, self.path = run_dir, run_dir / FILE
        self.taken = self.sure = False
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            if isinstance(error, PermissionError) or error.errno == errno.EROFS:
                raise Misuse(f"{run_dir} ({error.strerror})", "a folder that this user may write to") from None
            raise StorageFailed(f"{run_dir}: the run's folder could not be made: {error.strerror}") from error

    @classmethod
    def take(cls, run_dir: Path) -> RunLock:
        """Return the lock, taken. Raise a ``Misuse`` that names the holder if another process has it."""
        lock = cls(run_dir)
        if not lock.try_take():
            held = lock.refusal()
            lock.release()
            raise held
        return lock

    def try_take(self) -> bool:
        """Try to take the lock, and return whether this process has it. File systems without locks always succeed."""
        if not self.taken:
            try:
                lock_file(self._file, wait=False)
            except OSError as error:
                if error.errno in _ELSEWHERE:
                    return False
            else:
                self.sure = True
            self.taken = True
            self.say("preparing")
        return True

    def say(self, doing: Doing) -> None:
        """Write the holder's state into the file, for other processes."""
        if self.taken:
            text = json.dumps([os.getpid(), socket.gethostname(), doing]).encode()
            with contextlib.suppress(OSError):  # a full disk: the lock holds without it
                os.lseek(self._file, 0, os.SEEK_SET)
                os.write(self._file, text)
                os.ftruncate(self._file, len(text))

    def holder(self) -> Holder:
        """Return the holder that the file names; without a pid if the file cannot be read yet."""
        try:
            pid, host, doing = json.loads(self.path.read_bytes()[:1000])
            return Holder(int(pid), str(host)[:255], "supervising" if doing == "supervising" else "preparing")
        except (OSError, ValueError, TypeError):
            return Holder(0, "", "preparing")

    def refusal(self) -> Misuse:
        """Return the error for a second process."""
        pid, host, _ = self.holder()
        who = f"process {pid} on {host}" if pid else "another process"
        name = self.run_dir.name
        remedy = f"{who} does: `taut show {name}` shows it, `taut drain {name}` ends it"
        return Misuse(f"run {name!r}", "a run that no other process supervises", remedy)

    def release(self) -> None:
        """Release the lock. The file stays: without it, two processes could lock two files of one name."""
        self.taken = self.sure = False
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
