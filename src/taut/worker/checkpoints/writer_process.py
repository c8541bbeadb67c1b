"""The process that writes a worker's checkpoints (``writer_program.py``), as the worker sees it.

The file's bytes go through a pipe, which takes as many as it has room for, and the writer reads at its own pace: so the
worker's thread sleeps in the system most of the time, and needs the interpreter only when all is written.
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

from taut.errors import StorageFailed
from taut.worker.checkpoints import writer_program

PIPE_NBYTES = 1 << 20
AT_ONCE = 512  # buffers in one system call, which takes 1024
_ROOT = str(Path(writer_program.__file__).parents[3])
PROGRAM = f"import sys; sys.path.insert(0, {_ROOT!r}); from {writer_program.__name__} import main; main()"


class WriterProcessLost(Exception):
    """The writer process could not be started, or was killed: the worker writes the file itself then."""


class WriterProcess:
    """A writer process, from now on until ``close``, or until nothing holds it any more.

    >>> import tempfile
    >>> writer = WriterProcess()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     digest = writer.write(Path(folder) / "file", [memoryview(b"ta"), memoryview(b"ut")], digest_nbytes=4)
    ...     digest, (Path(folder) / "file").read_text()
    ('f0fc0dfb', 'taut')
    >>> writer.close()
    """

    def __init__(self) -> None:
        self._process = _started()
        self.close = weakref.finalize(self, _end, self._process, os.getpid())

    def write(self, path: Path, views: Sequence[memoryview], digest_nbytes: int, within_s: float | None = None) -> str:
        """Write ``path`` whole or not at all; return its hash. Raises ``StorageFailed`` if the disk fails,
        ``WriterProcessLost`` if the writer is gone. ``within_s``: the writer gives way, the less the more of it has
        passed."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise WriterProcessLost
        asked = {"path": os.path.abspath(path), "nbytes": sum(map(len, views))}
        order = json.dumps({**asked, "digest_nbytes": digest_nbytes, "within_s": within_s}).encode()
        try:
            _send(process.stdin.fileno(), [memoryview(len(order).to_bytes(8, "little") + order), *views])
            answer: dict[str, str] = json.loads(process.stdout.readline())  # of nothing, if the writer is gone
        except (BrokenPipeError, ValueError) as error:
            raise WriterProcessLost from error
        if answer["error"]:
            raise StorageFailed(f"{path} could not be written: {answer['error']}")
        return answer["digest"]


def _started() -> subprocess.Popen[bytes] | None:
    """Start the process; return None if the system has no such processes, or none can be started."""
    if not sys.executable or not hasattr(os, "writev"):
        return None
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
    except OSError:
        return None
    if sys.platform == "linux" and process.stdin is not None:
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(process.stdin.fileno(), fcntl.F_SETPIPE_SZ, PIPE_NBYTES)
    return process


def _send(pipe: int, views: Sequence[memoryview]) -> None:
    left = deque(view for view in views if len(view))
    while left:
        sent = os.writev(pipe, list(itertools.islice(left, AT_ONCE)))
        while left and sent >= len(left[0]):
            sent -= len(left.popleft())
        if sent:
            left[0] = left[0][sent:]


def _end(process: subprocess.Popen[bytes] | None, owner: int) -> None:
    """Kill the process: it has nothing to do any more, or nobody to report to. A fork of the worker must not do that."""
    if process is not None and os.getpid() == owner:
        process.kill()
        with process:  # closes its pipes, and waits for it
            pass
