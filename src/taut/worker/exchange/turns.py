"""Turns without I/O: what a worker does around a strategy, in order. The runtime and ``simulator/timing`` interpret them.

A turn is a generator. It asks its I/O (a protocol: ``StreamIO``, ``RoundIO``) for everything that takes time without
waiting, and yields wherever the worker may have to wait: a ``Wait``, or None where the time that the I/O has taken must
have passed before the turn goes on. The runtime blocks in a wait (``CommThread.wait``) and passes over a None; the
simulator resumes the turn at the event that ends the wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass


@dataclass(slots=True)
class Wait:
    """Wait until ``until()`` is true, calling ``idle`` whenever something happens. ``due_s``: ask ``until`` then, too,
    though nothing happened. ``pauses``: go on after whatever happens, or a moment. ``on_supervisor``: the supervisor
    has to answer, not only other workers."""

    until: Callable[[], bool]
    idle: Callable[[], None]
    due_s: float = math.inf
    pauses: bool = False
    on_supervisor: bool = False


Turn = Generator[Wait | None, None, None]
