"""The supervisor of a launch: a process that rank 0 starts beside itself, and that ends with the run.

It is ``taut.cli.launched``, in a session of its own, so that Ctrl-C does not end it before the run is drained. The plan
goes to its standard input, one line, and orders after it, a word each; its offer, or its error, comes back over a pipe.
Nothing secret is on its command line.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys

import msgspec

from taut.engines.launchers.base import Launch
from taut.engines.launchers.rendezvous import MESSAGE_NBYTES, Offer, decode
from taut.errors import RunFailed, TautError

STARTED_S = 180.0  # to come up, on a busy machine or from a slow file system
ENDED_S = 30.0  # for it to end after rank 0's script has
DRAIN, RESTART, ENDED = "drain", "restart", "ended"  # orders; the last one: rank 0's script has come to its end

_COMMAND = "import sys; sys.path.pop(0); from taut.cli.launched import main; main()"


class Plan(msgspec.Struct, frozen=True):
    """What the supervisor's process needs to know. ``pid``: rank 0's; ``report``: descriptor of the pipe back."""

    command: str
    size: int
    pid: int
    report: int
    one_host: bool
    host: str
    limit_s: float
    key: str
    attempt: int
    attempts: int
    again: bool  # the launcher may start all processes again: the run is kept in mind
    survives: bool
    started_by: list[str]


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no supervisor, with the exit code that the script's process is to have."""

    refused: str
    code: int


class NotStarted(TautError):
    """The supervisor refused to start; ``exit_code`` is what it says."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.exit_code = code


class SupervisorProcess:
    """Starts the supervisor's process, and waits for it in ``offer``."""

    def __init__(self, launch: Launch, key: str, limit_s: float) -> None:
        reads, writes = os.pipe()
        plan = Plan(
            command=launch.command,
            size=launch.size,
            pid=os.getpid(),
            report=writes,
            one_host=launch.one_host,
            host=launch.host,
            limit_s=limit_s,
            key=key,
            attempt=launch.attempt,
            attempts=launch.attempts,
            again=bool(launch.attempts or launch.job),
            survives=launch.survives,
            started_by=[launch.command, *sys.argv],
        )
        self._survives = launch.survives
        self._process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND], stdin=subprocess.PIPE, pass_fds=[writes], start_new_session=True
        )
        os.close(writes)
        self._reads = reads
        self._say(msgspec.json.encode(plan))

    def offer(self) -> Offer:
        """Return what the supervisor says of itself, once it is there. Raise ``NotStarted`` or ``RunFailed``."""
        try:
            return self._answer(self._reads)
        except BaseException:
            self.end()
            raise
        finally:
            os.close(self._reads)

    def _answer(self, reads: int) -> Offer:
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([reads], [], [], STARTED_S)
            piece = os.read(reads, MESSAGE_NBYTES) if ready else b""
            if not piece:
                why = "ended" if ready else f"said nothing for {STARTED_S:.0f} s"
                raise RunFailed(f"the run's supervisor could not be started: its process {why}")
            line += piece
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            refusal = msgspec.json.decode(line, type=Refusal)
            raise NotStarted(refusal.refused, refusal.code)
        return decode(line.strip())

    def order(self, word: str) -> None:
        """Give an order. Harmless where the supervisor is gone. May be called from a signal handler."""
        self._say(word.encode())

    def _say(self, line: bytes) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), line + b"\n")

    def end(self, limit_s: float = ENDED_S) -> None:
        """Tell it that this process ends, and wait until it has printed how the run ended. Ending twice is harmless."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if self._survives:
            limit_s = min(limit_s, 2.0)  # others may train on
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)

    @property
    def running(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.poll() is None
