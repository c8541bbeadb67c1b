"""A script that another launcher started as one of several (``torchrun``, ``srun``, ``mpirun``, or a package's): which
one it was, and how this process enters the run. The launchers are in ``taut.engines.launchers``, found by their names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from taut.config import chosen_launcher, worker_environment
from taut.errors import TautError
from taut.plugins import LAUNCHERS

AUTO = "auto"


class Launch(Protocol):
    """What the launcher says of this process."""

    @property
    def command(self) -> str: ...
    @property
    def size(self) -> int: ...


class Entered(Protocol):
    """What ``taut.join`` asks of a launch."""

    @property
    def launch(self) -> Launch: ...

    def enter(self) -> None:
        """Find the run, or start it."""

    def joined(self) -> None:
        """Note that this process is a worker."""

    def started(self) -> None:
        """Note that the run has started."""

    def failed(self, error: BaseException) -> None:
        """Note that this process is no worker."""


def found_launch(launcher: str | None) -> Entered | None:
    """Return this process's part in the launch of another launcher that started several; None where none did, or taut's
    own commands did. ``launcher``: as ``taut.join`` takes it."""
    name = chosen_launcher() or launcher
    if worker_environment() is not None or name in (None, "none"):
        return None
    for each in _names(str(name)):
        launch = LAUNCHERS.find(each).here()
        if launch is not None:
            if launch.size < 2:
                return None
            entered: Entered = LAUNCHERS[each].entered(launch)
            return entered
    return None


def _names(name: str) -> Iterator[str]:
    """Yield the launchers to ask: taut's own first, since installed packages have to be searched for."""
    if name != AUTO:
        yield name
        return
    yield from LAUNCHERS.own
    yield from (each for each in list(LAUNCHERS) if each not in LAUNCHERS.own)


@contextmanager
def told_in_a_line(launched: Entered | None) -> Iterator[None]:
    """End this process with a line and an exit code where the block raises ``TautError``: a script of another launcher
    has nobody to do so. Other errors are the script's own."""
    try:
        yield
    except BaseException as error:
        if launched is not None:
            launched.failed(error)
        if launched is None or not isinstance(error, TautError):
            raise
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(error.exit_code) from error
