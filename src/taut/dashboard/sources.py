"""Where the dashboard looks, and whom it tells what to do. It only ever reads snapshots: nothing waits for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from taut.dashboard.view_model import Seen, from_view
from taut.supervisor.control import Dismiss, order
from taut.supervisor.storage.previous_run import read_previous_run

if TYPE_CHECKING:
    from taut.supervisor.service import Supervisor

PATIENCE_S = 5.0  # for the supervisor's answer to an order


class Source(Protocol):
    """A run that can be looked at. ``look`` is called about once a second, from one thread, and must not take long;
    ``dismiss`` from another one, and may."""

    def look(self) -> Seen: ...

    def dismiss(self, rank: int, reason: str, expel: bool) -> str: ...


class SupervisorSource:
    """The supervisor in this process. Its view is a record that it leaves behind ten times a second: reading it takes no
    lock, and its loop does not know that it is read."""

    def __init__(self, supervisor: Supervisor, secret_for_all: bool) -> None:
        self._supervisor, self._secret_for_all = supervisor, secret_for_all

    def look(self) -> Seen:
        outcome = self._supervisor.wait(0.0)
        return from_view(self._supervisor.view(), self._supervisor.settings, outcome, self._secret_for_all)

    def dismiss(self, rank: int, reason: str, expel: bool) -> str:
        return dismiss_by_order(self._supervisor.run_dir, rank, reason, expel)


def dismiss_by_order(run_dir: Path, rank: int, reason: str, expel: bool) -> str:
    """Dismiss a worker as ``taut drain RUN WORKER`` does: by an owner's order over the supervisor's own socket, so that
    there is one way in, with one set of checks. Raises ``Misuse`` or ``SupervisorLost`` as there."""
    return order(read_previous_run(run_dir), Dismiss(rank, reason, expel), PATIENCE_S).said
