"""A script that raises on one worker: the others go on, and what that worker did until then is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script

JOB = str(Path(__file__).parent / "raising_job.py")


@pytest.mark.parametrize("strategy", ["sync", "async"])
def test_steps_before_the_error_are_counted(strategy: str) -> None:
    links, speeds = Links(Link(1e9, 1e-4)), Speeds(step_s=0.1)
    given = Scenario(script=JOB, workers=3, strategy=strategy, links=links, speeds=speeds)
    found = simulate_script(given, limit_s=600.0)
    assert "worker 1: KeyError: 'a file is missing'" in found.error
    assert found.workers[1].steps == 23 and found.workers[0].steps > 100
