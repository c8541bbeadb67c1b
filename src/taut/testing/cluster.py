"""A real cluster on this machine for tests: a supervisor, worker processes, and ways to kill or stop them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from taut.config import WorkerEnvironment
from taut.engines.base import Exit
from taut.engines.local import LocalEngine
from taut.supervisor.service import Supervisor
from taut.supervisor.view import ClusterView, Outcome, WorkerRow


class LocalCluster:
    """``script`` on ``workers`` processes, under a supervisor in this process.

    Waiting is for conditions, never for times; ``patience_s`` only bounds how long a broken test can hang.
    """

    engine = LocalEngine

    def __init__(
        self,
        script: str | Path,
        workers: int,
        run_dir: Path,
        *,
        args: Sequence[str] = (),
        settings: dict[str, object] | None = None,
        expected: int | None = None,
        patience_s: float = 60.0,
    ) -> None:
        self.script, self.args, self.patience_s = script, list(args), patience_s
        chosen = {"strategy": "async", "topology": "complete", "codec": "tether", **(settings or {})}
        self.supervisor = Supervisor(chosen, run_dir, run=run_dir.name, workers=expected or workers, seed=0)
        token_file = str(self.supervisor.token_file)
        self.environment = WorkerEnvironment(self.supervisor.address, token_file=token_file).variables()
        self.run_dir = run_dir
        self.engines: list[LocalEngine] = []
        self.exits: list[Exit] = []
        self._first = workers

    def __enter__(self) -> Self:
        self.supervisor.start()
        self.add(self._first)
        return self

    def __exit__(self, *_error: object) -> None:
        for engine in self.engines:
            engine.close()
        self.supervisor.stop()

    def add(self, workers: int = 1, script: str | Path | None = None, **environment: str) -> LocalEngine:
        """Start more workers; they join in mid-run."""
        logs = self.run_dir / f"engine-{len(self.engines)}"
        logs.mkdir(parents=True)
        variables = {**self.environment, **environment}
        engine = self.engine(script or self.script, self.args, workers, variables, log_dir=logs)
        engine.start()
        self.engines.append(engine)
        return engine

    def poll(self) -> ClusterView:
        for engine in self.engines:
            for each in engine.poll():
                self.exits.append(each)
                self.supervisor.exited(each.pid, each.reason, each.clean)
        return self.supervisor.view()

    def until(self, condition: Callable[[ClusterView], bool], what: str) -> ClusterView:
        """Wait until the view satisfies ``condition``."""
        deadline = time.monotonic() + self.patience_s
        while not condition(view := self.poll()):
            if self.supervisor.wait(0.02) is not None and not condition(self.poll()):
                raise AssertionError(f"the run ended before {what}: {self.supervisor.wait(0)}\n{self.logs()}")
            assert time.monotonic() < deadline, f"waited in vain for {what}; {view}\n{self.logs()}"
        return view

    def until_exits(self, count: int) -> list[Exit]:
        """Wait until ``count`` worker processes have ended; the run may be over long before."""
        deadline = time.monotonic() + self.patience_s
        while len(self.exits) < count:
            self.poll()
            self.supervisor.wait(0.02)
            assert time.monotonic() < deadline, f"{len(self.exits)} of {count} scripts have ended\n{self.logs()}"
        return self.exits

    def outcome(self) -> Outcome:
        """Wait for the end of the run."""
        deadline = time.monotonic() + self.patience_s
        while (outcome := self.supervisor.wait(0.05)) is None:
            self.poll()
            assert time.monotonic() < deadline, f"the run does not end; {self.supervisor.view()}\n{self.logs()}"
        return outcome

    def row(self, rank: int) -> WorkerRow:
        return next(row for row in self.poll().workers if row.rank == rank)

    def signal(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process of worker ``rank``; the default is kill -9."""
        os.kill(self.row(rank).pid, number)

    def logs(self) -> str:
        """Return the output of the workers."""
        texts = [(log, log.read_text(errors="replace")) for e in self.engines for log in e.logs if log.exists()]
        return "\n".join(f"--- {log.parent.name}/{log.name}\n{text[-2000:]}" for log, text in texts)
