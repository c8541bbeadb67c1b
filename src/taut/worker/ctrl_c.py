"""Ctrl-C that cannot get lost. Python raises ``KeyboardInterrupt`` wherever the main thread happens to be; inside a
destructor or a callback from C it is printed and forgotten, and a training loop would go on as if nothing had happened.
(Seen: a worker that trained on for a minute after its Ctrl-C.) So it is remembered, and raised again at the next step."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class CtrlC:
    """In force from the making to ``close``, where this is the main thread and nobody else handles the signal."""

    def __init__(self) -> None:
        self._pressed = False
        self._before: Any = None
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._press)

    def check(self) -> None:
        """``KeyboardInterrupt`` if there was one that nobody has acted on."""
        if self._pressed:
            self._pressed = False
            raise KeyboardInterrupt

    def close(self) -> None:
        self._pressed = False
        if self._before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._before)
        self._before = None

    def _press(self, number: int, frame: FrameType | None) -> None:
        self._pressed = True
        signal.default_int_handler(number, frame)
