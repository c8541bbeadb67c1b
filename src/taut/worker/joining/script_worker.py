"""The worker of a script: one at a time, and closed at the end of the script if the script has not done so.

``taut.join`` notes it. Scripts are run within ``script_end``; in a plain Python process the worker is ended when the
interpreter exits.
"""

from __future__ import annotations

import atexit
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from taut.errors import Misuse

if TYPE_CHECKING:
    from taut.worker.session_worker import SessionWorker

# The worker, and the run that it is in. In virtual time each thread has one.
_JOINED: ContextVar[tuple[SessionWorker, object] | None] = ContextVar("taut_joined", default=None)


def check_first(run: object) -> None:
    """Refuse a second ``taut.join``: while the first is open and, in the same ``run`` (None: alone), after that."""
    previous = _JOINED.get()
    if previous is None:
        return
    if not previous[0].closed:
        raise Misuse(
            "a second taut.join while the first worker is open",
            "one worker in a script, which has all that is trained",
            "join several optimizers together, taut.join(model, [optimizer_g, optimizer_d]), or close the first worker",
        )
    if run is not None and run == previous[1]:
        raise Misuse(
            "a second taut.join in a run that this script has left",
            "one taut.join in a run",
            "start a run for each training: `taut run` once for each",
        )


def worker_open() -> bool:
    """Return whether the script has a worker that is not closed."""
    joined = _JOINED.get()
    return joined is not None and not joined[0].closed


def note_joined(worker: SessionWorker, run: object) -> None:
    _JOINED.set((worker, run))
    if run is not None:
        atexit.register(_at_exit)


@contextmanager
def script_end() -> Iterator[None]:
    """Run a script in the block: at its end, a worker that it has left open is ended as by a ``with`` block."""
    try:
        yield
    except BaseException as error:
        if not _end(error):
            raise
    else:
        _end(None)


def _end(error: BaseException | None) -> bool:
    """End the worker, if it is open and launched; return whether that handles ``error``, with which the script ended."""
    worker, run = _JOINED.get() or (None, None)
    if worker is None or worker.closed or run is None:
        return False
    if error is None:
        warnings.warn(
            "the script ended without closing its worker, which is done now; "
            "better write: with taut.join(...) as worker:",
            stacklevel=2,
        )
    return bool(worker.__exit__(None if error is None else type(error), error, None))


def _at_exit() -> None:
    """End the worker of a plain Python process, which has already printed the error."""
    _end(getattr(sys, "last_exc", None) or getattr(sys, "last_value", None))
