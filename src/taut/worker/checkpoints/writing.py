"""Writing a file whole or not at all, in this process or, run as a program, in one of its own beside the worker's.

As a program it reads orders from its standard input, and answers each with a line on its standard output:

    order     8 bytes (little-endian): the length of what follows; JSON: path, nbytes, digest_nbytes, within_s;
              then the file's ``nbytes`` bytes, as they come
    answer    JSON: digest, error

Why a process: nobody waits for it, so it can work at the lowest priority there is, only when a core has nothing else to
do. A thread of the worker cannot: it needs the interpreter between any two pieces, and whoever trains waits until it had
it. It needs nothing but the standard library, to be small and to start soon.
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
from collections.abc import Callable
from typing import Any

from taut.core.files import AtomicFile

# How much to take of cores that are never idle, until which part of the time that there is has passed. Torch's threads
# wait for the slowest of them: whoever takes a part of its core makes the whole step so much longer.
IDLE_UNTIL = 0.25  # nearly nothing
NICE_UNTIL, NICENESS = 0.75, 10  # a tenth of a core
HURRIED_NICENESS = 5  # a quarter of a core
PIECE_NBYTES = 1 << 20
SLICE_NBYTES = 1 << 25  # so much goes to the disk at a time: all at once would hold up whoever else writes


class Writing:
    """A file on its way: under another name until it is complete and on disk. ``OSError`` where the disk does not let us.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     writing = Writing(f"{folder}/new/file", digest_nbytes=4)
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
        """The next bytes of it. Neither writing nor hashing holds the interpreter."""
        before = self.nbytes
        self._file.write(piece)
        self._hash.update(piece)
        self.nbytes += len(piece)
        if before // SLICE_NBYTES != self.nbytes // SLICE_NBYTES:
            self._to_disk()

    def finish(self) -> str:
        """It is complete: its hash."""
        self._to_disk()
        self._file.commit()
        return self._hash.hexdigest()

    def abandon(self) -> None:
        """It will not be; what was there under its name stays."""
        self._file.discard()

    def _to_disk(self) -> None:
        """What is there has no place in memory any more: others can do with it, those who train first of all."""
        self._file.sync()
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._file.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def wake_gently() -> None:
    """On Linux, where a thread has a class of its own: when this one wakes, it takes the core from nobody."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def stand_back() -> None:
    """On Linux, where threads differ in that: others go first from now on, before this one and those that it starts."""
    wake_gently()
    be_nicer(HURRIED_NICENESS)


def be_nicer(by: int) -> None:
    """This thread, and for good: to go back takes rights that we do not have."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + by)


def work_when_idle() -> None:
    """On Linux, this thread only works when a core is idle, or nearly so: whoever wakes takes it back at once. (From any
    other, even one of low priority, it is not taken before its turn of a few milliseconds is over.)"""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def work_nicely() -> None:
    """On Linux, this thread takes less than others where a core is never idle."""
    be_nicer(NICENESS - HURRIED_NICENESS)


# --------------------------------------------------------------------------------------------------- the program


class Receiving:
    """One order: its bytes from ``source`` to a file. What goes wrong with the file is kept in ``error``, and the bytes
    are read all the same, so that the next order is found behind them. ``EOFError``: the worker is gone."""

    def __init__(self, order: dict[str, Any], source: int) -> None:
        self.error, self.digest = "", ""
        self._source, self._left = source, int(order["nbytes"])
        self._room = memoryview(bytearray(min(PIECE_NBYTES, max(1, self._left))))
        self._writing: Writing | None = None
        self._gone = False
        self.relieved = threading.Event()  # someone else is to do the rest
        self._try(lambda: self._begin(order["path"], int(order["digest_nbytes"])))

    @property
    def over(self) -> bool:
        return not self._left or self._gone

    def go_on(self) -> None:
        """Until all is there, the worker is gone, or somebody else is to go on."""
        while not self.over and not self.relieved.is_set():
            piece = self._room[: min(len(self._room), self._left)]
            count = os.readv(self._source, [piece])
            self._left -= count
            self._gone = not count
            self._try(lambda piece=piece[:count]: self._add(piece))  # type: ignore[misc]

    def end(self) -> None:
        """All is there, or the worker is gone."""
        if self._gone:
            if self._writing is not None:
                self._writing.abandon()
            raise EOFError
        self._try(self._finish)

    def _begin(self, path: str, digest_nbytes: int) -> None:
        self._writing = Writing(path, digest_nbytes)

    def _add(self, piece: memoryview) -> None:
        if self._writing is not None:
            self._writing.add(piece)

    def _finish(self) -> None:
        if self._writing is not None:
            self.digest = self._writing.finish()

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self.error = self.error or error.strerror or str(error)
            if self._writing is not None:
                self._writing.abandon()
                self._writing = None


def obey(order: dict[str, Any], source: int) -> dict[str, str]:
    """Write one file within so many seconds, if that can be: in a thread that gives way to everybody, then in one that
    gives way to most, and at last in this one."""
    receiving = Receiving(order, source)
    within_s = order["within_s"]
    begun_s = time.monotonic()
    for until, stand_aside in ((IDLE_UNTIL, work_when_idle), (NICE_UNTIL, work_nicely)):
        if not receiving.over:
            left_s = None if within_s is None else max(0.0, begun_s + until * within_s - time.monotonic())
            _beside(receiving, stand_aside, left_s)
    receiving.go_on()
    receiving.end()
    return {"digest": receiving.digest, "error": receiving.error}


def _beside(receiving: Receiving, stand_aside: Callable[[], None], most_s: float | None) -> None:
    """Go on in a thread of its own, for as long at most."""

    def work() -> None:
        stand_aside()
        receiving.go_on()

    receiving.relieved.clear()
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(most_s)
    receiving.relieved.set()
    thread.join()
    receiving.relieved.clear()


def serve(source: int, sink: int) -> None:
    """Order after order, until the worker is gone."""
    try:
        while True:
            order = json.loads(_exactly(source, int.from_bytes(_exactly(source, 8), "little")))
            os.write(sink, json.dumps(obey(order, source)).encode() + b"\n")
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
    for number in (signal.SIGINT, signal.SIGTERM):  # they are meant for the worker; this ends when that is gone
        signal.signal(number, signal.SIG_IGN)
    stand_back()
    serve(0, 1)
