"""Writing a file whole or not at all, in this process or, run as a program, in a process of its own beside the worker's.

As a program it reads orders from its standard input, and answers each with a line on its standard output:

    order     8 bytes (little-endian): the length of what follows; JSON: path, nbytes, digest_nbytes, within_s;
              then the file's ``nbytes`` bytes, as they come
    answer    JSON: digest, error

Why a process: nothing waits for it, so it can work at the lowest priority there is, only when a core is idle. A thread of
the worker cannot: it needs the interpreter between any two pieces, and the training thread waits until it gets the
interpreter back. The program needs only the standard library, to be small and to start quickly.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from taut.core.files import AtomicFile

# How much to take of cores that are never idle, until which share of the time has passed. Torch's threads wait for the
# slowest of them: taking a part of its core makes the whole step that much longer.
IDLE_UNTIL = 0.25  # nearly nothing
NICE_UNTIL, NICENESS = 0.75, 10  # a tenth of a core
HURRIED_NICENESS = 5  # a quarter of a core
PIECE_NBYTES = 1 << 20
SLICE_NBYTES = 1 << 25  # flushed to disk at a time: all at once would hold up other writers


class HashedFile:
    """A file being written: it has another name until it is complete and on disk. Raises ``OSError`` if the disk fails.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     writing = HashedFile(f"{folder}/new/file", digest_nbytes=4)
    ...     writing.add(memoryview(b"taut")); digest = writing.finish()
    ...     digest, pathlib.Path(folder, "new", "file").read_bytes()
    ('f0fc0dfb', b'taut')
    """

    def __init__(self, path: str, digest_nbytes: int) -> None:
        self.path, self.nbytes = path, 0
        self._hash = hashlib.blake2b(digest_size=digest_nbytes)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._file = AtomicFile(path)

    def add(self, piece: memoryview) -> None:
        """Append bytes. Neither writing nor hashing holds the interpreter."""
        before = self.nbytes
        self._file.write(piece)
        self._hash.update(piece)
        self.nbytes += len(piece)
        if before // SLICE_NBYTES != self.nbytes // SLICE_NBYTES:
            self._to_disk()

    def finish(self) -> str:
        """Complete the file; return its hash."""
        self._to_disk()
        self._file.commit()
        return self._hash.hexdigest()

    def abandon(self) -> None:
        """Remove the unfinished file; an older file of its name stays."""
        self._file.discard()

    def _to_disk(self) -> None:
        """Flush to disk and drop the pages from the cache, whose memory training can use."""
        self._file.sync()
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._file.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def give_way(policy: str = "SCHED_BATCH", niceness: int = 0) -> None:
    """Lower, on Linux, the priority of this thread and of those that it starts, for good: raising it again takes rights
    that we do not have. SCHED_BATCH preempts no other thread when it wakes. SCHED_IDLE works only when a core is idle, or
    nearly so: any thread that wakes takes the core back at once. (Threads of other classes keep it for milliseconds.)"""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, getattr(os, policy), os.sched_param(0))
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + niceness)


# --------------------------------------------------------------------------------------------------- the program


class FileReceiver:
    """One order: copies its bytes from ``source`` to a file. An error of the file is kept in ``error``, and the bytes are
    read all the same, so that the next order is found behind them. ``EOFError``: the worker is gone."""

    def __init__(self, order: dict[str, Any], source: int) -> None:
        self.error = self.digest = ""
        self._source, self._left = source, int(order["nbytes"])
        self._buffer = memoryview(bytearray(min(PIECE_NBYTES, max(1, self._left))))
        self._file: HashedFile | None = None
        self._gone = False
        self._relieved = threading.Event()  # another thread is to do the rest
        with self._watched():
            self._file = HashedFile(order["path"], int(order["digest_nbytes"]))

    @property
    def over(self) -> bool:
        return not self._left or self._gone

    def go_on(self) -> None:
        """Copy until all bytes are there, the worker is gone, or another thread is to go on."""
        while not self.over and not self._relieved.is_set():
            count = os.readv(self._source, [self._buffer[: self._left]])
            self._left -= count
            self._gone = not count
            with self._watched():
                if self._file is not None:
                    self._file.add(self._buffer[:count])

    def go_on_beside(self, policy: str, niceness: int, most_s: float | None) -> None:
        """Go on in a thread of its own, which gives way to others, for at most ``most_s``."""

        def work() -> None:
            give_way(policy, niceness)
            self.go_on()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(most_s)
        self._relieved.set()
        thread.join()
        self._relieved.clear()

    def end(self) -> None:
        """Finish the file, or abandon it if the worker is gone."""
        if self._gone:
            self._abandon()
            raise EOFError
        with self._watched():
            if self._file is not None:
                self.digest = self._file.finish()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.error = self.error or error.strerror or str(error)
            self._abandon()

    def _abandon(self) -> None:
        if self._file is not None:
            self._file.abandon()
            self._file = None


def write_file(order: dict[str, Any], source: int) -> dict[str, str]:
    """Write one file within ``within_s`` seconds, if possible: in a thread that gives way to all others, then in one that
    gives way to most, and at last in this one."""
    receiver = FileReceiver(order, source)
    within_s = order["within_s"]
    begun_s = time.monotonic()
    for until, policy, niceness in (
        (IDLE_UNTIL, "SCHED_IDLE", 0),
        (NICE_UNTIL, "SCHED_BATCH", NICENESS - HURRIED_NICENESS),
    ):
        if not receiver.over:
            left_s = None if within_s is None else max(0.0, begun_s + until * within_s - time.monotonic())
            receiver.go_on_beside(policy, niceness, left_s)
    receiver.go_on()
    receiver.end()
    return {"digest": receiver.digest, "error": receiver.error}


def serve(source: int, sink: int) -> None:
    """Carry out one order after the other, until the worker is gone."""
    try:
        while True:
            order = json.loads(_exactly(source, int.from_bytes(_exactly(source, 8), "little")))
            os.write(sink, json.dumps(write_file(order, source)).encode() + b"\n")
    except (EOFError, BrokenPipeError):
        return


def _exactly(source: int, nbytes: int) -> bytes:
    found = b""
    while len(found) < nbytes:
        piece = os.read(source, nbytes - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found


def main() -> None:
    """Write files for the worker that has started this process, until it is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they are meant for the worker; this process ends when that is gone
        signal.signal(number, signal.SIG_IGN)
    give_way(niceness=HURRIED_NICENESS)
    serve(0, 1)
