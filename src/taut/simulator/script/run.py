"""Simulate a script: every worker really trains, in virtual time, with the runtime's own code.

Each worker is the user's script in a fiber. Its messages take the time that the model of the network says, its computing
the time that the model of its machine says; everything else (admission, leases, strategy, codec, failure detection, the
end) is what a real run would do, since it is the same code.
"""

from __future__ import annotations

import io
import json
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from taut.errors import Misuse, RunFailed, TautError
from taut.simulator.models.network import Network
from taut.simulator.models.rng import Rng
from taut.simulator.models.speeds import Pace
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script import fibers
from taut.simulator.script.comm import Switchboard
from taut.simulator.script.connection import VirtualConnector, VirtualWatch
from taut.simulator.script.fault_injection import FaultInjection
from taut.simulator.script.fibers import NS, EventLoop, Fiber
from taut.simulator.script.network_faults import NetworkFaults
from taut.simulator.script.observer import Observer
from taut.simulator.script.supervisor import VirtualSupervisor
from taut.simulator.trace import Trace
from taut.specs import parse_early_stop
from taut.strategies.compatibility import combine
from taut.strategies.rate_scaling import scaling_in
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.view import grouped
from taut.worker.joining.connection import CONNECTOR
from taut.worker.joining.main_script import import_folder, module_of, run_main, script_trace
from taut.worker.joining.script_worker import script_end

Progress = Callable[[float, int], None]  # virtual seconds, steps of all workers


def simulate_script(
    scenario: Scenario,
    *,
    trace: Trace | None = None,
    progress: Progress | None = None,
    output: Path | None = None,
    limit_s: float | None = None,
) -> Simulated:
    """Run ``scenario.script`` with ``scenario.workers`` workers in virtual time. ``output``: a folder for their output.
    Raises ``RunFailed`` if no model comes out, or if the run is not over after ``limit_s`` of virtual time."""
    check_file(scenario.script)
    scenario.check()
    began_s = time.perf_counter()
    with deterministic():
        run = ScriptRun(scenario, trace, progress, output)
        try:
            run.limit_ns = None if limit_s is None else round(limit_s * NS)
            run.go()
        finally:
            run.close()
    return run.result(time.perf_counter() - began_s)


class ScriptRun:
    """One simulation, from its start to its ``result``."""

    def __init__(self, scenario: Scenario, trace: Trace | None, progress: Progress | None, output: Path | None) -> None:
        self.scenario, self.trace, self.output = scenario, trace, output
        self.loop = EventLoop()
        self.switch = Switchboard(NetworkFaults(scenario.faults, Rng(scenario.seed, "faults")))
        self.network = Network(scenario.links, Rng(scenario.seed, "network"))
        self.pace = Pace(scenario.speeds, Rng(scenario.seed, "speeds"))
        self.connectors: list[VirtualConnector] = []
        self.limit_ns: int | None = None
        self.slowed: dict[int, float] = {}  # by worker, how many times slower now
        self.supervisor = VirtualSupervisor(self.loop, self.network, self.switch, self._plan(), self._noted)
        self.observer = Observer(self.loop, self.supervisor, progress)
        self._outputs: list[Any] = []
        for _ in range(scenario.workers):
            self.start_worker()
        self.injection = FaultInjection(self)

    def _plan(self) -> RunPlan:
        given = self.scenario
        chosen = combine(given.strategy, given.topology or None, given.codec or None, given.finish or None, given.workers)
        common = {"strategy": given.strategy, "workers": given.workers, "seed": given.seed}
        parts = ("topology", "codec", "finish")
        settings = {
            **common,
            **{name: getattr(chosen, name) for name in parts},
            "scale_lr": given.scale_lr or None,
            **({"validate_every": given.validate_every} if given.validate_every else {}),
            "explicit": [name for name in parts if getattr(given, name)],
        }
        host = socket.gethostname()
        scaling = scaling_in(settings, given.workers)
        return RunPlan.of(
            chosen,
            run="simulated",
            settings=json.dumps(settings),
            host=host,
            rate_scaling=scaling,
            early_stop=parse_early_stop(given.stop_early) if given.stop_early else None,
            **common,
        )

    def _noted(self, kind: str, text: str) -> None:
        if self.trace is not None:
            self.trace.instant(-1, kind, self.loop.now_ns, text=text)

    def start_worker(self) -> None:
        """Start one more worker; it joins by itself."""
        worker = len(self.connectors)
        fiber = Fiber(self.loop, lambda: self._script(worker), f"worker-{worker}", self._out(worker))
        watch = VirtualWatch(fiber, worker, self.pace, self.scenario.costs, self.trace)
        connector = VirtualConnector(fiber, worker, self.network, self.switch, watch)
        watch.stepped = lambda: self._stepped(connector)
        watch.slowed = lambda: self.slowed.get(worker, 1.0)
        self.connectors.append(connector)
        self.loop.at(self.loop.now_ns, fiber.resume)

    def _script(self, worker: int) -> None:
        CONNECTOR.set(self.connectors[worker])
        try:
            with script_end():
                run_main(self.scenario.script)
        except SystemExit as error:
            if error.code not in (None, 0):
                raise RunFailed(f"the script of worker {worker} exited with {error.code!r}") from None

    def _stepped(self, connector: VirtualConnector) -> None:
        self.observer.stepped(connector)
        self.injection.stepped(connector.transport.worker, connector.watch.steps)
        limit = self.scenario.steps
        if limit is not None and self.observer.steps >= limit * self.scenario.workers:
            self.supervisor.drain(f"{limit} steps per worker")

    def _out(self, worker: int) -> Any:
        if self.output is None:
            return io.StringIO()
        self.output.mkdir(parents=True, exist_ok=True)
        file = (self.output / f"worker-{worker}.log").open("w")
        self._outputs.append(file)
        return file

    def close(self) -> None:
        """Unwind the workers that are left."""
        self.loop.close()
        for file in self._outputs:
            file.close()

    def go(self) -> None:
        with _arguments(self.scenario):
            self.loop.run(self._over)
        if self.supervisor.outcome is None:
            self.raise_failure()
            raise RunFailed("the simulated run came to a standstill: this is a bug in taut, please report the command")

    def _over(self) -> bool:
        if self.limit_ns is not None and self.loop.now_ns > self.limit_ns:
            alive = [connector.transport.worker for connector in self.connectors if not connector.fiber.done]
            raise RunFailed(f"not over after {self.limit_ns / NS:g} s of virtual time; workers {alive} are still running")
        if self.supervisor.outcome is None:
            started = all(connector.fiber.done for connector in self.connectors)
            if started and not any(connector.made for connector in self.connectors):
                self.raise_failure()
                raise RunFailed(f"{self.scenario.script} ended without joining the run; it must call taut.join(...)")
            return False
        return all(connector.fiber.done for connector in self.connectors)

    def raise_failure(self) -> None:
        """Raise the first worker's failure: its own error if that is taut's, else ``RunFailed``, with its traceback as a
        note."""
        failures = [connector.fiber.failure for connector in self.connectors if connector.fiber.failure is not None]
        if failures and isinstance(failures[0], TautError):
            raise failures[0]
        if failures:
            what = "".join(traceback.format_exception_only(failures[0])).strip().splitlines()[-1]
            failed = RunFailed(f"{self.scenario.script} failed: {what}")
            failed.add_note(self._told(failures[0]))
            raise failed from None

    def _told(self, error: BaseException) -> str:
        """Return the error with the traceback of the script's own lines."""
        trace = script_trace(error.__traceback__, __file__, fibers.__file__)
        return "".join(traceback.format_exception(type(error), error.with_traceback(trace), trace)).rstrip()

    def result(self, real_s: float) -> Simulated:
        outcome = self.supervisor.outcome
        assert outcome is not None
        failures = [connector.fiber.failure for connector in self.connectors if connector.fiber.failure is not None]
        workers = {rank: row.statistics for rank, row in outcome.workers.items()}
        gone = {rank: row.reason for rank, row in outcome.workers.items() if row.state == "gone"}
        error = outcome.error
        if outcome.failures and outcome.exit_code and not error:
            error = "; ".join(grouped(outcome.failures))
        observed = self.observer.history(), self.observer.scores(), self.observer.distances()
        reached = outcome.consensus, outcome.identical, outcome.validation
        counted = {"events": self.loop.events, "real_s": real_s}
        ledger, missed = self.supervisor.cluster.ledger, self.injection.missed()
        phase = ledger.phase - ledger.growths  # of the schedule of strategies
        return Simulated(
            self.scenario,
            outcome.wall_s,
            workers,
            gone,
            *observed,
            *reached,
            counted,
            error,
            outcome,
            phase,
            missed,
            tuple(self.supervisor.evaluations),
            self.supervisor.cluster.early.reason,
            any(isinstance(failure, Misuse) for failure in failures),
            next((self._told(failure) for failure in failures if not isinstance(failure, TautError)), ""),
        )


def check_file(script: str) -> None:
    """Refuse a script that is no file; a module is looked for when it is run."""
    if not module_of(script) and not Path(script).is_file():
        raise Misuse(f"script {script!r}", "a file that exists")


@contextmanager
def _arguments(scenario: Scenario) -> Iterator[None]:
    """Set the script's own command line and import folder, and restore the main module afterwards: each script is it in
    turn."""
    before, given, main = sys.argv, list(scenario.args), sys.modules["__main__"]
    if scenario.epochs is not None:
        given += ["--epochs", str(scenario.epochs)]
    sys.argv, found = [scenario.script, *given], list(sys.path)
    sys.path.insert(0, import_folder(scenario.script))
    try:
        yield
    finally:
        sys.argv, sys.modules["__main__"], sys.path[:] = before, main, found


@contextmanager
def deterministic() -> Iterator[None]:
    """Use one thread of torch: sums are then made in the same order every time."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
