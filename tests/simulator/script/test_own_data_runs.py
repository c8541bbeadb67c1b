"""Workers with data of their own: every strategy goes through each worker's, and nobody waits for ever at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script

JOB = str(Path(__file__).parent / "own_data_job.py")
SPEEDS = Speeds(step_s=0.1)
LINKS = Links(Link(1e9, 1e-4))
STRATEGIES = (
    "sync", "async", "ssp:2", "independent", "dpsgd", "gossip", "averaging:every=2", "fedavg:fraction=0.5,steps=2",
    "diloco:every=2", "diloco:every=2,delayed=true", "dynamic:every=2", "admm:every=2", "easgd:every=2", "server",
)  # fmt: skip


def simulated(strategy: str, *args: str) -> Simulated:
    return simulate_script(
        Scenario(script=JOB, workers=3, strategy=strategy, speeds=SPEEDS, links=LINKS, args=args), limit_s=600.0
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_worker_trains_on_its_own_samples_and_all_of_them_end(strategy: str) -> None:
    found = simulated(strategy)
    assert found.error == ""
    assert {rank: each.samples for rank, each in found.workers.items()} == {0: 40, 1: 80, 2: 120}


def test_own_passes_one_by_one() -> None:
    found = simulated("averaging:every=3", "--outer")
    assert found.error == "" and found.identical
    assert sum(each.samples for each in found.workers.values()) == 240


def test_the_average_counts_each_worker_by_its_own_samples() -> None:
    found = simulated("averaging:every=1000", "--epochs", "1")
    torch.manual_seed(0)
    began = float(torch.nn.Linear(4, 1).bias.detach())
    # worker i makes i + 1 steps of 20 samples, each of which moves the bias by -0.01 (i + 1)
    moved = sum(20 * n * n * -0.01 * n for n in (1, 2, 3)) / sum(20 * n for n in (1, 2, 3))
    assert found.validation is not None
    assert found.validation.chosen == pytest.approx(began + moved, abs=1e-6)


def test_a_worker_without_a_sample_of_its_own_is_told_so_and_the_others_go_on() -> None:
    found = simulated("sync", "--empty", "1")
    assert found.outcome is not None
    (failure,) = found.outcome.failures
    assert "own=True with an empty data set on this worker: expected at least one sample" in failure
    assert {rank: each.samples for rank, each in found.workers.items() if rank != 1} == {0: 40, 2: 120}
