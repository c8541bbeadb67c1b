"""The process that writes a worker's checkpoints (``writing.py``), as the worker sees it.

The file's bytes go through a pipe, which takes as many as it has room for, and the writer reads at its own pace: so the
worker's thread sleeps in the system most of the time, and the interpreter is not needed until all is written.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taut.errors import StorageFailed
from taut.worker.checkpoints import writing

PIPE_NBYTES = 1 << 20
AT_ONCE = 512  # buffers in one call of the system: it takes 1024
_ROOT = str(Path(writing.__file__).parents[3])
PROGRAM = f"import sys; sys.path.insert(0, {_ROOT!r}); from {writing.__name__} import main; main()"


class WriterProcessLost(Exception):
    """The process that writes is not there: it could not be started, or somebody has ended it. You do not get to see it:
    the worker writes the file itself then."""


class WriterProcess:
    """A writer, from now on until ``close``, or until nobody holds it any more.

    >>> import tempfile
    >>> scribe = WriterProcess()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     digest = scribe.write(Path(folder) / "file", [memoryview(b"ta"), memoryview(b"ut")], digest_nbytes=4)
    ...     digest, (Path(folder) / "file").read_text()
    ('f0fc0dfb', 'taut')
    >>> scribe.close()
    """

    def __init__(self) -> None:
        self._process = _started()
        self.close = weakref.finalize(self, _end, self._process, os.getpid())

    def write(self, path: Path, views: Sequence[memoryview], digest_nbytes: int, within_s: float | None = None) -> str:
        """Write ``path`` whole or not at all: its hash. ``StorageFailed`` where the disk does not let us,
        ``WriterProcessLost`` where the writer is gone. ``within_s``: it gives way to others, the less the more of that
        has passed."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise WriterProcessLost
        order = json.dumps(
            {
                "path": os.path.abspath(path),
                "nbytes": sum(map(len, views)),
                "digest_nbytes": digest_nbytes,
                "within_s": within_s,
            }
        ).encode()
        try:
            _send(process.stdin.fileno(), [memoryview(len(order).to_bytes(8, "little") + order), *views])
            answer = _answer(process.stdout.fileno())
        except (BrokenPipeError, ValueError) as error:
            raise WriterProcessLost from error
        if answer["error"]:
            raise StorageFailed(f"{path} could not be written: {answer['error']}")
        return str(answer["digest"])


def _started() -> subprocess.Popen[bytes] | None:
    """None where there are no such processes, or none can be started."""
    if not sys.executable or not hasattr(os, "writev"):
        return None
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
    except OSError:
        return None
    if sys.platform == "linux" and process.stdin is not None:
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(process.stdin.fileno(), fcntl.F_SETPIPE_SZ, PIPE_NBYTES)
    return process


def _send(pipe: int, views: Sequence[memoryview]) -> None:
    """All of it, in as few calls of the system as there can be."""
    left = deque(view for view in views if len(view))
    while left:
        sent = os.writev(pipe, list(itertools.islice(left, AT_ONCE)))
        while left and sent >= len(left[0]):
            sent -= len(left.popleft())
        if sent:
            left[0] = left[0][sent:]


def _answer(pipe: int) -> dict[str, Any]:
    """A line of JSON; ``ValueError`` where the other side is gone."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(pipe, PIPE_NBYTES)
        if not piece:
            raise ValueError(line)
        line += piece
    answer: dict[str, Any] = json.loads(line)
    return answer


def _end(process: subprocess.Popen[bytes] | None, owner: int) -> None:
    """It has nothing to do any more, or nobody who would be told. Not for a copy of the worker's process to say."""
    if process is not None and os.getpid() == owner:
        process.kill()
        with process:  # its pipes are closed, and it is waited for
            pass
