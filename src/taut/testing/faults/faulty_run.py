"""Run a script under a plan of faults, in virtual time: one call for a test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script
from taut.testing.fault_plan import FaultPlan

if TYPE_CHECKING:
    from taut.simulator.result import Simulated
    from taut.simulator.trace import Trace

ETHERNET = Link(1e9, 100e-6)


def run_with_faults(
    script: str | Path,
    plan: FaultPlan,
    *,
    workers: int = 4,
    strategy: str = "async",
    args: Sequence[str] = (),
    step_s: float = 0.01,
    limit_s: float | None = 600.0,
    trace: Trace | None = None,
    **scenario: Any,
) -> Simulated:
    """Run ``script`` with ``workers`` workers while ``plan`` happens. A step takes ``step_s`` and the network is gigabit
    Ethernet, unless ``scenario`` (the other fields of ``Scenario``: topology, codec, finish, steps, epochs, speeds,
    links) says otherwise. Raises ``RunFailed`` if no model comes out, or the run is not over after ``limit_s`` of virtual
    time.

        found = run_with_faults("train.py", FaultPlan().kill(2).at_step(30), workers=4)
        assert not found.error and found.outcome.samples_undone == 0
    """
    plan.check(workers)
    settings: dict[str, Any] = {"speeds": Speeds(step_s=step_s), "links": Links(ETHERNET), "seed": plan.seed}
    settings |= {"strategy": strategy, "args": tuple(args), "faults": plan.faults} | scenario
    given = Scenario(script=str(script), workers=workers, **settings)
    return simulate_script(given, limit_s=limit_s, trace=trace)
