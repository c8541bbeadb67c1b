"""Learning rates that follow the number of workers: whole runs in virtual time, with deaths and newcomers."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from pathlib import Path

import pytest

from taut.errors import Misuse
from taut.simulator.faults import Departure, Fail, Join
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script
from taut.simulator.trace import Trace

SCRIPT = """
import torch, taut
from torch.nn import functional
x = torch.randn(1600, 3, generator=torch.Generator().manual_seed(0))
y = x.argmax(dim=1)
torch.manual_seed(0)
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
factors, used = [], []
with taut.join(model, optimizer, also={"scheduler": scheduler}, validate=lambda model: float(model(x).sum())) as worker:
    seen = optimizer.register_step_pre_hook(lambda one, *_: used.append(one.param_groups[0]["lr"]))
    for inputs, targets in worker.batches((x, y), epochs=3, batch_size=20):
        used.clear()
        worker.step(functional.cross_entropy(model(inputs), targets))
        own = scheduler.get_last_lr()[0]
        assert optimizer.state_dict()["param_groups"][0]["lr"] == own
        factors += [round(each / own, 2) for each in used[-1:]]  # a newcomer's first gradients make no step
        scheduler.step()
print(f"{worker.rank}: {factors}")
"""
RUN = Scenario(workers=3, speeds=Speeds(step_s=0.2), links=Links(Link(math.inf, 1e-4)))
FAULTS = (Fail(2, 2.0), Join(2, 8.0))


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "script.py").write_text(SCRIPT)
    return str(tmp_path / "script.py")


def simulated(scenario: Scenario, folder: Path) -> tuple[Simulated, list[float], str]:
    """What came out, the factors that worker 0 saw, and the events."""
    trace = Trace({})
    found = simulate_script(scenario, trace=trace, output=folder)
    assert found.error == ""
    printed = (folder / "worker-0.log").read_text().strip()
    return found, ast.literal_eval(printed.partition(": ")[2]), "\n".join(trace.lines())


def changes(factors: list[float]) -> list[float]:
    return [factor for factor, before in zip(factors, [0.0, *factors], strict=False) if factor != before]


@pytest.mark.parametrize("strategy", ["sync", "async", "averaging:every=4"])
def test_rates_follow_the_workers_and_return(script: str, strategy: str, tmp_path: Path) -> None:
    run = replace(RUN, script=script, strategy=strategy, faults=FAULTS, scale_lr="linear")
    found, factors, events = simulated(run, tmp_path / "out")
    assert changes(factors) == [1.0, 0.67, 1.33] or changes(factors) == [1.0, 0.67, 1.0, 1.33]
    assert found.identical or strategy != "sync"
    assert "multiplied by 0.6667: 2 workers, and they are meant for 3 (linear)" in events
    assert "multiplied by 1.333: 4 workers" in events


def test_a_worker_that_leaves_and_one_that_comes_instead_give_the_rate_that_was(script: str, tmp_path: Path) -> None:
    faults = (Departure(1, 3.0), Join(1, 8.0))
    run = replace(RUN, script=script, strategy="sync", faults=faults, scale_lr="sqrt")
    found, factors, _ = simulated(run, tmp_path / "out")
    assert found.identical and changes(factors) == [1.0, 0.82, 1.0]


@pytest.mark.parametrize("strategy", ["sync", "async"])
def test_without_joins_and_leaves_the_option_changes_no_bit(script: str, strategy: str, tmp_path: Path) -> None:
    def score(scale_lr: str) -> float | None:
        run = replace(RUN, script=script, strategy=strategy, scale_lr=scale_lr)
        found, factors, events = simulated(run, tmp_path / scale_lr)
        assert set(factors) == {1.0} and "multiplied" not in events and found.validation is not None
        return found.validation.chosen

    assert score("linear") == score("") is not None


def test_a_rate_for_one_worker_is_scaled_from_the_start(script: str, tmp_path: Path) -> None:
    _, factors, events = simulated(replace(RUN, script=script, strategy="sync", scale_lr="linear:1"), tmp_path / "out")
    assert set(factors) == {3.0} and "multiplied by 3: 3 workers" in events


def test_a_global_batch_with_scaled_rates_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("batch_size=20", "global_batch=60"))
    found = simulate_script(replace(RUN, script=str(script), strategy="sync", scale_lr="linear"))
    assert "global_batch=60 with --scale-lr linear:3: expected one of them" in found.error


def test_a_wrong_scaling_is_refused_before_anything_runs(script: str) -> None:
    with pytest.raises(Misuse, match="expected linear or sqrt"):
        replace(RUN, script=script, scale_lr="liner").check()
