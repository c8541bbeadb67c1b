"""Measure a script's steps on this machine: how long, how many samples, how many parameters."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace

from taut.errors import RunFailed
from taut.simulator.scenario import Scenario
from taut.simulator.script.connection import VirtualConnector
from taut.simulator.script.run import ScriptRun, deterministic

STEPS = 20
WARM_UP = 4  # steps that allocate and compile, and are not counted


@dataclass(frozen=True)
class MeasuredScript:
    """``step_s``: the median over a few steps of one worker alone."""

    step_s: float
    batch: int
    parameters: int


class _Alone(ScriptRun):
    def _stepped(self, connector: VirtualConnector) -> None:
        super()._stepped(connector)
        self.ends_s.append(time.perf_counter())

    def go(self) -> None:
        self.ends_s: list[float] = []
        super().go()


def measure(scenario: Scenario) -> MeasuredScript:
    """Run the script alone for a few steps, in real time, on one thread."""
    alone = replace(scenario, workers=1, strategy="independent", topology="", codec="", finish="", steps=STEPS, faults=())
    with deterministic():
        run = _Alone(alone, None, None, None)
        try:
            run.go()
        finally:
            run.close()
    session = run.connectors[0].session
    made = session.statistics()
    taken_s = [b - a for a, b in zip(run.ends_s, run.ends_s[1:], strict=False)]
    counted = taken_s[WARM_UP:] or taken_s
    if not counted:
        run.raise_failure()
        raise RunFailed(
            f"{scenario.script} made {len(run.ends_s)} steps: too few to measure one; give the time with --step"
        )
    step_us = max(1, round(1e6 * statistics.median(counted)))  # whole, so that the printed figure is the one used
    return MeasuredScript(step_us / 1e6, round(made.samples / made.steps), session.params.size)
