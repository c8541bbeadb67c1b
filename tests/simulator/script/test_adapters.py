"""Weights that begin at zero, or near it: async is as good as sync there, and sends as little as elsewhere."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest

from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script

JOB = str(Path(__file__).parents[1] / "adapters_job.py")


def trained(strategy: str, seed: int, begin: str) -> Simulated:
    return simulate_script(
        Scenario(
            script=JOB,
            args=("--seed", str(seed), "--begin", begin),
            workers=2,
            strategy=strategy,
            seed=seed,
            speeds=Speeds(step_s=0.01),
            links=Links(Link(1e9, 1e-4)),
        )
    )


def score(found: Simulated) -> float:
    assert found.error == "" and found.identical
    assert found.validation is not None and found.validation.chosen is not None
    return found.validation.chosen


@pytest.mark.parametrize("begin", ["0", pytest.param("1e-5", marks=pytest.mark.long)])
def test_async_is_as_good_as_sync(begin: str) -> None:
    seeds = range(2)
    apart = [trained("async", seed, begin) for seed in seeds]
    together = mean(score(trained("sync", seed, begin)) for seed in seeds)
    assert together > 0.6 and mean(map(score, apart)) > together - 0.015
    assert all(each.density < 0.1 for found in apart for each in found.workers.values())
