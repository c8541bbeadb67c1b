"""The launcher's loop with a supervisor and an engine that only say what they are told: Ctrl-C, and how workers end."""

from __future__ import annotations

import io
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from taut.cli.launch import conduct
from taut.cli.output.display import Display
from taut.cli.run_end import RunEnd, check_joined, report_failures
from taut.core.messages import Statistics
from taut.engines.base import Exit
from taut.supervisor.view import Outcome, WorkerRow, WorkerState

FAILED = Outcome("failed", 1, None, exact=False, digest="", model=None, error="Ctrl-C, before any worker was ready")


@dataclass
class Supervisor:
    """One that is interrupted in its first tick, and fails when it is told to drain."""

    by: signal.Signals = signal.SIGINT
    drained: list[str] = field(default_factory=list)
    stopped: bool = False
    superseded: bool = False

    def wait(self, timeout_s: float) -> Outcome | None:
        if not self.drained:
            signal.raise_signal(self.by)
            return None
        return FAILED

    def view(self) -> Any:
        return type("View", (), {"workers": {}})

    def drain(self, reason: str) -> None:
        self.drained.append(reason)

    def exited(self, pid: int, reason: str, clean: bool) -> None:
        raise AssertionError("nobody ended")

    def stop(self) -> None:
        self.stopped = True


@dataclass
class Engine:
    """Workers that are still importing, and would go on for long."""

    logs: list[Path]
    log_starts: tuple[int, ...] = (0,)
    started: dict[int, int] = field(default_factory=dict)
    compiling: tuple[int, int] | None = None
    remarks: tuple[str, ...] = ()
    polls_after_the_end: int = 0
    closed: bool = False
    pids: dict[int, int] = field(default_factory=dict)
    running: bool = True

    def start(self) -> None: ...

    def poll(self, timeout_s: float = 0.0) -> list[Exit]:
        self.polls_after_the_end += timeout_s > 0
        assert self.polls_after_the_end < 3, "it waits for workers that nobody needs"
        return []

    def close(self) -> None:
        self.closed = True


class Shown(Display):
    def update(self, view: Any) -> None: ...


@pytest.mark.parametrize(("by", "named"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_ctrl_c_before_anything_was_trained_waits_for_no_worker_and_shows_no_failure(
    tmp_path: Path, by: signal.Signals, named: str
) -> None:
    console = Console(file=io.StringIO(), width=200)
    supervisor, engine, display = Supervisor(by), Engine([tmp_path / "worker-0.log"]), Shown(console, quiet=False)
    ended = conduct(supervisor, engine, display)  # type: ignore[arg-type]
    assert supervisor.drained == [named]
    assert engine.closed
    assert supervisor.stopped
    assert ended.exit_code == 1
    report_failures(ended, engine, display)  # type: ignore[arg-type]
    assert ended.exits == []


class Replaced(Supervisor):
    """One that was stopped for a while, and finds that another one has taken over."""

    def wait(self, timeout_s: float) -> Outcome | None:
        assert not self.superseded, "it goes on although it is over"
        self.superseded = True
        return None


def test_a_supervisor_that_was_replaced_ends_and_lets_its_workers_finish(tmp_path: Path) -> None:
    class Finishing(Engine):
        def poll(self, timeout_s: float = 0.0) -> list[Exit]:
            if not timeout_s:
                return []
            self.running = False
            return [Exit(7, "finished", True, 0, 0)]

    console = Console(file=io.StringIO(), width=200)
    supervisor, engine = Replaced(), Finishing([tmp_path / "worker-0.log"])
    ended = conduct(supervisor, engine, Shown(console, quiet=False))  # type: ignore[arg-type]
    assert [each.pid for each in ended.exits] == [7]
    assert ended.exit_code == 0
    check_joined(ended, tmp_path / "train.py")
    assert "another supervisor has taken over" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("state", "code", "expected"), [("gone", -9, 0), ("gone", 1, 1), ("finished", -9, 1), ("finished", 0, 0)]
)
def test_the_late_end_of_a_worker_that_was_gone_is_no_failure(state: WorkerState, code: int, expected: int) -> None:
    """A node that was cut off is declared dead after the run: the run has been judged without it."""
    row = WorkerRow(0, "host", 7, state, Statistics(), 0.0, "")
    outcome = Outcome("finished", 0, True, True, "", Path("model"), {0: row})
    assert RunEnd(outcome, late=[Exit(7, "ended", code == 0, 0, code)]).exit_code == expected
