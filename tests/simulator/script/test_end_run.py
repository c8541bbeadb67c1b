"""A script that ends the run: all workers stop in order, under every strategy, in every loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script

JOB = str(Path(__file__).parent / "end_run_job.py")
STRATEGIES = ("sync", "async", "ssp:2", "independent", "dpsgd", "gossip", "averaging:every=2", "diloco:every=2", "server")


def simulated(strategy: str, *args: str, workers: int = 3) -> Simulated:
    return simulate_script(
        Scenario(
            script=JOB,
            workers=workers,
            strategy=strategy,
            speeds=Speeds(step_s=0.1),
            links=Links(Link(1e9, 1e-4)),
            args=args,
        ),
        limit_s=600.0,
    )


@pytest.mark.parametrize("loop", ["--by=0", "--own-loop"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_workers_end_in_order(strategy: str, loop: str) -> None:
    found = simulated(strategy, loop)
    assert found.error == "" and not found.gone
    assert all(5 <= each.steps <= 20 for each in found.workers.values()), "of 200 or 300"
    assert found.identical or strategy in ("independent", "dpsgd", "gossip")


def test_rounds_of_clients_end() -> None:
    found = simulated("fedavg:fraction=1,clients=6", "--clients")
    assert found.error == "" and found.identical and all(each.steps < 30 for each in found.workers.values())


def test_a_worker_that_is_not_the_main_one_ends_nothing() -> None:
    found = simulated("async", "--by", "1")
    assert found.error == "" and sum(each.samples for each in found.workers.values()) == 6000


@pytest.mark.parametrize("loop", ["--by=0", "--own-loop", "--clients"])
def test_a_worker_alone_ends(loop: str) -> None:
    found = simulated("fedavg:fraction=1,clients=6" if loop == "--clients" else "async", loop, workers=1)
    assert found.error == "" and found.workers[0].steps <= 14
