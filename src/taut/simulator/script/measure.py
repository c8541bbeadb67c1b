"""A script as one worker alone, in this process: how long its steps take on this machine, and the updates it makes."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from taut.errors import RunFailed, TautError
from taut.simulator.scenario import Scenario
from taut.simulator.script.connection import VirtualConnector
from taut.simulator.script.run import ScriptRun, check_file, deterministic
from taut.worker.standalone.worker import Vector

if TYPE_CHECKING:
    from taut.worker.model.flat_params import FlatParams

Watcher = Callable[["FlatParams", Vector], None]
STEPS = 20
WARM_UP = 4  # steps that allocate and compile, and are not counted


@dataclass(frozen=True)
class MeasuredScript:
    """``step_s``: the median over a few steps of one worker alone."""

    step_s: float
    batch: int
    parameters: int


class _Alone(ScriptRun):
    """Calls ``watcher`` after every step."""

    def __init__(self, scenario: Scenario, watcher: Callable[[VirtualConnector], None]) -> None:
        super().__init__(scenario, None, None, None)
        self._watcher = watcher

    def _stepped(self, connector: VirtualConnector) -> None:
        self._watcher(connector)
        super()._stepped(connector)

    def go(self) -> None:
        try:
            with deterministic():
                super().go()
        finally:
            self.close()


def measure(scenario: Scenario) -> MeasuredScript:
    """Run the script alone for a few steps, in real time, on one thread. Of a global batch, which it has as a whole then,
    take an equal part."""
    alone = replace(scenario, workers=1, strategy="independent", topology="", codec="", finish="", steps=STEPS, faults=())
    alone = replace(alone, validate_every="", stop_early="")
    ends_s: list[float] = []
    run = _Alone(alone, lambda _: ends_s.append(time.perf_counter()))
    run.go()
    taken_s = [b - a for a, b in itertools.pairwise(ends_s)]
    counted = taken_s[WARM_UP:] or taken_s
    if not counted:
        run.raise_failure()
        few = f"{scenario.script} made {len(ends_s)} steps: too few to measure one"
        raise RunFailed(f"{few}; give the time with --step")
    parts = scenario.workers if run.connectors[0].watch.weighs else 1
    step_us = max(1, round(1e6 * statistics.median(counted) / parts))  # whole, so that the printed figure is the one used
    session = run.connectors[0].session
    made = session.statistics()
    return MeasuredScript(step_us / 1e6, round(made.samples / made.steps / parts), session.params.size)


def watch_script(script: str, args: tuple[str, ...], steps: int, watcher: Watcher) -> int:
    """Run the script alone, and call ``watcher`` with the weights after every step; then drain the run, as by Ctrl-C.
    Return how many steps it made: fewer if its data ended before. Raises ``RunFailed`` if the script itself fails."""
    check_file(script)

    def watch(connector: VirtualConnector) -> None:
        params = connector.session.params
        watcher(params, params.host(params.vector))

    run = _Alone(Scenario(workers=1, strategy="independent", steps=steps, script=script, args=args), watch)
    try:
        run.go()
    except TautError:
        raise
    except Exception as error:
        raise RunFailed(f"{script} failed: {type(error).__name__}: {error}") from error
    result = run.result(0.0)
    if result.error:
        raise RunFailed(result.error)
    return run.observer.steps
