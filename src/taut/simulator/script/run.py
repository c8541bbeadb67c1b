"""Simulate a script: every worker really trains, in virtual time, with the runtime's own code.

Each worker is the user's script in a fiber. What it sends takes the time that the model of the network says, what it
computes the time that the model of its machine says; everything else (admission, leases, strategy, codec, failure
detection, the end) is what a real run would do, since it is the same code.
"""

from __future__ import annotations

import io
import json
import runpy
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from taut.core.messages import Statistics
from taut.errors import Misuse, RunFailed
from taut.simulator.models.network import Network
from taut.simulator.models.rng import Rng
from taut.simulator.models.speeds import Pace
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script.connection import VirtualEntrance, VirtualWatch
from taut.simulator.script.fault_injection import Injection
from taut.simulator.script.fibers import NS, Fiber, World
from taut.simulator.script.network_faults import Disruption
from taut.simulator.script.node import Switchboard
from taut.simulator.script.observer import Observer
from taut.simulator.script.supervisor import VirtualSupervisor
from taut.simulator.trace import Trace
from taut.strategies.compatibility import combine
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.view import grouped
from taut.worker.connection import ENTRANCE
from taut.worker.script_worker import script_end

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
    ``RunFailed`` where no model comes out, or where it is not over after ``limit_s`` of virtual time."""
    if not Path(scenario.script).is_file():
        raise Misuse(f"script {scenario.script!r}", "a file that exists")
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
    """One simulation, from its making to its ``result``."""

    def __init__(self, scenario: Scenario, trace: Trace | None, progress: Progress | None, output: Path | None) -> None:
        self.scenario, self.trace, self.output = scenario, trace, output
        self.world = World()
        self.switch = Switchboard(Disruption(scenario.faults, Rng(scenario.seed, "faults")))
        self.network = Network(scenario.links, Rng(scenario.seed, "network"))
        self.pace = Pace(scenario.speeds, Rng(scenario.seed, "speeds"))
        self.entrances: list[VirtualEntrance] = []
        self.limit_ns: int | None = None
        self.slowed: dict[int, float] = {}  # for the time being, how many times
        self.supervisor = VirtualSupervisor(self.world, self.network, self.switch, self._plan(), self._noted)
        self.observer = Observer(self.world, self.supervisor, progress)
        self._outputs: list[Any] = []
        for _ in range(scenario.workers):
            self.start_worker()
        self.injection = Injection(self)

    def _plan(self) -> RunPlan:
        given = self.scenario
        chosen = combine(given.strategy, given.topology or None, given.codec or None, given.finish or None, given.workers)
        settings = {
            "strategy": given.strategy,
            "topology": chosen.topology,
            "codec": chosen.codec,
            "finish": chosen.finish,
            "workers": given.workers,
            "seed": given.seed,
            "explicit": [name for name in ("topology", "codec", "finish") if getattr(given, name)],
        }
        return RunPlan.of(
            chosen,
            run="simulated",
            seed=given.seed,
            workers=given.workers,
            settings=json.dumps(settings),
            host=socket.gethostname(),
            strategy=given.strategy,
        )

    def _noted(self, kind: str, text: str) -> None:
        if self.trace is not None:
            self.trace.instant(-1, kind, self.world.now_ns, text=text)

    # ------------------------------------------------------------------------------------------ workers

    def start_worker(self) -> None:
        """One more; it joins by itself."""
        place = len(self.entrances)
        fiber = Fiber(self.world, lambda: self._script(place), f"worker-{place}", self._out(place))
        watch = VirtualWatch(fiber, place, self.pace, self.scenario.costs, self.trace)
        entrance = VirtualEntrance(fiber, place, self.network, self.switch, watch)
        watch.stepped = lambda: self._stepped(entrance)
        watch.slowed = lambda: self.slowed.get(place, 1.0)
        self.entrances.append(entrance)
        self.world.at(self.world.now_ns, fiber.resume)

    def _script(self, place: int) -> None:
        ENTRANCE.set(self.entrances[place])
        try:
            with script_end():
                runpy.run_path(self.scenario.script, run_name="__main__")
        except SystemExit as error:
            if error.code not in (None, 0):
                raise RunFailed(f"the script of worker {place} exited with {error.code!r}") from None

    def _stepped(self, entrance: VirtualEntrance) -> None:
        self.observer.stepped(entrance)
        self.injection.stepped(entrance.transport.place, entrance.watch.steps)
        limit = self.scenario.steps
        if limit is not None and self.observer.steps >= limit * self.scenario.workers:
            self.supervisor.drain(f"{limit} steps per worker")

    def _out(self, place: int) -> Any:
        if self.output is None:
            return io.StringIO()
        self.output.mkdir(parents=True, exist_ok=True)
        file = (self.output / f"worker-{place}.log").open("w")
        self._outputs.append(file)
        return file

    def close(self) -> None:
        """Unwind what is left of the workers."""
        self.world.close()
        for file in self._outputs:
            file.close()

    # --------------------------------------------------------------------------------------------- run

    def go(self) -> None:
        with _arguments(self.scenario):
            self.world.run(self._over)
        if self.supervisor.outcome is None:
            self.raise_failure()
            raise RunFailed("the simulated run came to a standstill: this is a bug in taut, please report the command")

    def _over(self) -> bool:
        if self.limit_ns is not None and self.world.now_ns > self.limit_ns:
            alive = [entrance.transport.place for entrance in self.entrances if not entrance.fiber.done]
            raise RunFailed(f"not over after {self.limit_ns / NS:g} s of virtual time; workers {alive} still go")
        if self.supervisor.outcome is None:
            started = all(entrance.fiber.done for entrance in self.entrances)
            if started and not any(entrance.made for entrance in self.entrances):
                self.raise_failure()
                raise RunFailed(f"{self.scenario.script} ended without joining the run; it must call taut.join(...)")
            return False
        return all(entrance.fiber.done for entrance in self.entrances)

    def raise_failure(self) -> None:
        """Raise what a script raised, if one did."""
        for entrance in self.entrances:
            if entrance.fiber.failure is not None:
                raise entrance.fiber.failure

    def result(self, real_s: float) -> Simulated:
        outcome = self.supervisor.outcome
        assert outcome is not None
        workers: dict[int, Statistics] = {rank: row.statistics for rank, row in outcome.workers.items()}
        gone = {rank: row.reason for rank, row in outcome.workers.items() if row.state == "gone"}
        error = outcome.error
        if outcome.failures and outcome.exit_code and not error:
            error = "; ".join(grouped(outcome.failures))
        return Simulated(
            self.scenario,
            outcome.wall_s,
            workers,
            gone,
            self.observer.history(),
            self.observer.scores(),
            self.observer.distances(),
            outcome.consensus,
            outcome.identical,
            outcome.validation,
            {"events": self.world.events, "real_s": real_s},
            error,
            outcome,
            self.supervisor.cluster.ledger.phase,
            self.injection.missed(),
        )


@contextmanager
def _arguments(scenario: Scenario) -> Iterator[None]:
    """The script's own command line; and each script is the main module in turn, with nobody's turn after the last."""
    before, given, main = sys.argv, list(scenario.args), sys.modules["__main__"]
    if scenario.epochs is not None:
        given += ["--epochs", str(scenario.epochs)]
    sys.argv = [scenario.script, *given]
    try:
        yield
    finally:
        sys.argv, sys.modules["__main__"] = before, main


@contextmanager
def deterministic() -> Iterator[None]:
    """One thread: sums are then made in the same order every time."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
