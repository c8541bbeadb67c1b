"""Ctrl-C and SIGTERM in a process of another launcher: the run is drained and its model saved, or, where the launcher
will start the processes again, a checkpoint is written. Rank 0 passes the word to the supervisor, which ends all."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from taut.engines.launchers.base import Launch
from taut.engines.launchers.supervisor_process import DRAIN, RESTART, SupervisorProcess
from taut.errors import Expelled
from taut.worker.joining.script_worker import worker_open

SAME_S = 3.0  # a launcher passes on a Ctrl-C that the terminal has given to all of us already
END_S = 25.0  # torchrun and Slurm kill a process 30 s after their SIGTERM


class SignalOrders:
    """Handlers of SIGINT and SIGTERM, where the script has none of its own. The first signal is an order for the
    supervisor (from rank 0); a second one, later, does what it would do without taut."""

    def __init__(self, launch: Launch, supervisor: SupervisorProcess | None) -> None:
        self._launch, self._supervisor = launch, supervisor
        self._before: dict[int, Any] = {}
        self._since_s: float | None = None
        self._pid, self._quiet = os.getpid(), False
        self._told = sys.excepthook

    def install(self) -> None:
        """Install the handlers; not in another thread than the main one, which Python does not allow."""
        if threading.current_thread() is not threading.main_thread():
            return
        plain = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
        for number, usual in plain.items():
            if signal.getsignal(number) == usual:
                self._before[number] = signal.signal(number, self._signalled)

        sys.excepthook = self._tell

    def _tell(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Print how the script ended; nothing where the supervisor ended it for a restart, as it was asked to."""
        if not (self._quiet and isinstance(error, Expelled)):
            self._told(kind, error, trace)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if os.getpid() != self._pid or not worker_open():
            self._default(number)
        elif self._since_s is None:
            self._since_s = now_s
            if self._supervisor is not None:
                self._supervisor.order(RESTART if number == signal.SIGTERM and self._launch.restarts else DRAIN)
            self._quiet = number == signal.SIGTERM and self._launch.restarts
            if number == signal.SIGTERM:
                watch = threading.Timer(END_S, os._exit, [128 + number])
                watch.daemon = True
                watch.start()
        elif now_s - self._since_s > SAME_S:
            self._default(number)

    def _default(self, number: int) -> None:
        """Do what the signal does without taut."""
        signal.signal(number, self._before[number])
        os.kill(os.getpid(), number)
