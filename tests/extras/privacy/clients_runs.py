"""Whole runs of clients in virtual time."""

from __future__ import annotations

from pathlib import Path

from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script

JOB = str(Path(__file__).parents[2] / "simulator" / "script" / "clients_job.py")


def simulated(workers: int, strategy: str, *args: str, **more: object) -> Simulated:
    given = {"speeds": Speeds(step_s=0.1), "links": Links(Link(1e9, 1e-4))} | more
    return simulate_script(
        Scenario(script=JOB, workers=workers, strategy=strategy, args=args, **given),  # type: ignore[arg-type]
        limit_s=600.0,
    )
