"""One process at a time conducts a run: it holds a lock on a file in the run's folder.

The lock is the operating system's, which releases it when the process ends, however it ends: none is ever left behind.
The file says who holds it. A supervisor that takes over from one that is only stopped does so by the term
(``store_writer.py``), without the lock, and has it as soon as the other is gone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
from pathlib import Path
from typing import Literal, NamedTuple

from taut.errors import Misuse, StorageFailed

FILE = "lock"
_ELSEWHERE = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)
_BYTE = 1 << 20  # Windows locks bytes, also against reading: one far behind the text

Doing = Literal["preparing", "supervising"]


class Holder(NamedTuple):
    """Who has the lock. ``preparing``: nothing of it is in the run's store yet, so that no term says that it is there."""

    pid: int
    host: str
    doing: Doing


class RunLock:
    """``taken``: this process has it; ``sure``: and no other of this machine has (some file systems know no locks).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, second = RunLock(Path(folder)), RunLock(Path(folder))
    ...     tried = first.try_take(), second.try_take(), second.holder().pid == os.getpid()
    ...     first.release()
    ...     tried, second.try_take(), second.release()
    ((True, False, True), True, None)
    """

    def __init__(self, run_dir: Path) -> None:
        """``Misuse`` where the folder is not for this user to write to, ``StorageFailed`` for any other reason."""
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
        """The lock, taken; ``Misuse`` that names the holder where somebody else has it."""
        lock = cls(run_dir)
        if not lock.try_take():
            held = lock.refusal()
            lock.release()
            raise held
        return lock

    def try_take(self) -> bool:
        """Whether this process has it now. Where a file system knows no locks, there is nothing to wait for."""
        if not self.taken:
            try:
                _lock(self._file)
            except OSError as error:
                if error.errno in _ELSEWHERE:
                    return False
            else:
                self.sure = True
            self.taken = True
            self.say("preparing")
        return True

    def say(self, doing: Doing) -> None:
        """Tell others, in the file, what the holder does."""
        if self.taken:
            text = json.dumps([os.getpid(), socket.gethostname(), doing]).encode()
            with contextlib.suppress(OSError):  # a full disk: the lock holds without it
                os.lseek(self._file, 0, os.SEEK_SET)
                os.write(self._file, text)
                os.ftruncate(self._file, len(text))

    def holder(self) -> Holder:
        """As the file says; one that cannot be read has only just begun."""
        try:
            pid, host, doing = json.loads(self.path.read_bytes()[:1000])
            return Holder(int(pid), str(host)[:255], "supervising" if doing == "supervising" else "preparing")
        except (OSError, ValueError, TypeError):
            return Holder(0, "", "preparing")

    def refusal(self) -> Misuse:
        """What to tell whoever comes second."""
        pid, host, _ = self.holder()
        who = f"process {pid} on {host}" if pid else "another process"
        name = self.run_dir.name
        remedy = f"{who} does: `taut show {name}` shows it, `taut drain {name}` ends it"
        return Misuse(f"run {name!r}", "a run that nobody else conducts", remedy)

    def release(self) -> None:
        """Let others have it. The file stays: to remove it would let two hold two files of one name."""
        self.taken = self.sure = False
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _lock(file: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        os.lseek(file, _BYTE, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
