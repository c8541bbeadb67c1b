"""A global batch over unequal workers: whole runs in virtual time."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from taut.simulator.faults import Departure, Fail, Join
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script.measure import measure
from taut.simulator.script.run import simulate_script

JOB = str(Path(__file__).parents[1] / "global_batch_job.py")
STEP_S, PART = 0.1, 40  # an equal part of the global batch takes a worker of average speed so long
EQUAL = Scenario(script=JOB, workers=3, strategy="sync", speeds=Speeds(step_s=STEP_S), links=Links(Link(1e9, 1e-4)))
UNEQUAL = replace(EQUAL, speeds=Speeds(step_s=STEP_S, stragglers={2: 4.0}))
IDEAL = 2.25 * PART / STEP_S  # samples per second: all speeds added up
GLOBAL = ("--global-batch", str(3 * PART))
ADDS = """
import sys, torch, taut
x = torch.rand(1000, 4, generator=torch.Generator().manual_seed(0))
model = torch.nn.Linear(4, 1, bias=False)
torch.nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with taut.join(model, optimizer, validate=lambda model: float(model(x.sum(0)))) as worker:
    for _ in range(3):
        for inputs in worker.batches(x, global_batch=120):
            worker.step(model(inputs).mean())
"""


def simulated(scenario: Scenario, *args: str) -> Simulated:
    found = simulate_script(replace(scenario, args=args))
    assert found.error == "" and found.identical
    return found


def speed(found: Simulated) -> float:
    return sum(each.samples for each in found.workers.values()) / found.wall_s


def loss(found: Simulated) -> float:
    assert found.validation is not None and found.validation.chosen is not None
    return -found.validation.chosen


def test_unequal_workers_reach_the_sum_of_their_speeds_and_the_loss_of_equal_ones() -> None:
    long = (*GLOBAL, "--samples", "4800", "--epochs", "4")
    unequal, equal = simulated(UNEQUAL, *long), simulated(EQUAL, *long)
    assert speed(unequal) > 0.9 * IDEAL
    assert sum(each.samples for each in unequal.workers.values()) == 4 * 4800, "each sample once per pass"
    assert loss(unequal) == pytest.approx(loss(equal), rel=0.03)


def test_a_fixed_batch_waits_for_the_slow_worker() -> None:
    assert speed(simulated(UNEQUAL, "--batch-size", str(PART))) < 0.35 * IDEAL


def test_equal_workers_make_the_steps_of_a_fixed_batch_bit_by_bit() -> None:
    shared, fixed = simulated(EQUAL, *GLOBAL), simulated(EQUAL, "--batch-size", str(PART))
    assert loss(shared) == loss(fixed) and shared.wall_s == fixed.wall_s


def test_every_sample_has_the_same_weight_whatever_round_it_is_in(tmp_path: Path) -> None:
    """The gradients of a linear loss only add up: the weights at the end show what each sample counted for."""
    script = tmp_path / "adds.py"
    script.write_text(ADDS)
    found = simulated(replace(UNEQUAL, script=str(script)))
    x = torch.rand(1000, 4, generator=torch.Generator().manual_seed(0)).sum(0)
    assert loss(found) == pytest.approx(0.1 / 120 * 3 * float(x @ x), rel=1e-4)


@pytest.mark.parametrize(
    "strategy",
    [
        "averaging:every=4",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("fedavg:fraction=1,steps=4", "diloco:every=4")),
    ],
)
def test_methods_in_rounds_reach_the_sum_of_speeds_too(strategy: str) -> None:
    long = (*GLOBAL, "--samples", "4800", "--epochs", "4", "--one-loop")
    unequal, equal = (simulated(replace(each, strategy=strategy), *long) for each in (UNEQUAL, EQUAL))
    assert speed(unequal) > 0.85 * IDEAL
    assert sum(each.samples for each in unequal.workers.values()) == 4 * 4800, "each sample once per pass"
    assert loss(unequal) < 1.05 * loss(equal)
    fixed = simulated(replace(UNEQUAL, strategy=strategy), "--batch-size", str(PART), *long[2:])
    assert speed(unequal) > 2 * speed(fixed)


@pytest.mark.parametrize(
    "strategy",
    [
        "async",
        "dpsgd",
        "averaging:every=4,weights=equal",
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in ("ssp:3", "averaging:robust=median", "admm", "sync:backup=1")
        ),
    ],
)
def test_other_strategies_share_the_global_batch_equally(strategy: str, tmp_path: Path) -> None:
    simulate_script(replace(UNEQUAL, strategy=strategy, args=(*GLOBAL, "--one-loop")), output=tmp_path)
    for sizes in read(tmp_path).values():
        assert set(sizes[:-3]) == {PART}


def test_a_measured_step_is_of_an_equal_part() -> None:
    whole, part = (measure(replace(EQUAL, workers=workers, args=GLOBAL)) for workers in (1, 3))
    assert (whole.batch, part.batch) == (3 * PART, PART)


def read(folder: Path) -> dict[str, list[int]]:
    """The sizes of the batches of each worker, as it printed them."""
    lines = [path.read_text().strip().rpartition(": ") for path in sorted(folder.rglob("worker-*.log"))]
    return {name: ast.literal_eval(sizes) for name, _, sizes in lines if sizes}


@pytest.mark.parametrize("strategy", ["sync", "averaging:every=4"])
@pytest.mark.parametrize("leaves", [Fail(1, 2.0), pytest.param(Departure(1, 2.0), marks=pytest.mark.long)])
def test_the_share_of_a_worker_that_goes_is_the_others_until_a_newcomer_has_it(
    strategy: str, leaves: Fail | Departure, tmp_path: Path
) -> None:
    faults = (leaves, Join(1, 8.0))
    scenario = replace(EQUAL, strategy=strategy, faults=faults, args=(*GLOBAL, "--epochs", "8", "--one-loop"))
    found = simulate_script(scenario, output=tmp_path)
    assert found.error == "" and found.identical and found.outcome is not None
    assert found.outcome.samples_undone == 0
    sizes = next(each for name, each in read(tmp_path).items() if name == "worker 0")
    assert sizes[5] == PART and 60 in sizes
    assert sizes.index(60) < len(sizes) - 1 - sizes[::-1].index(PART), "after the newcomer came"
