"""``worker.step`` asks the strategy once for each step, whatever it exchanges."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script
from taut.strategies.periodic.admm import ADMM
from taut.worker.session import WorkerSession

JOB = Path(__file__).parents[2] / "simulator" / "tiny_job.py"


@pytest.mark.parametrize("strategy", ["sync", "admm:every=2", "async"])
def test_before_each_step_once(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, shaped = [], []
    before_step, shape_gradient = WorkerSession.before_step, ADMM.shape_gradient

    def counted(self: WorkerSession, samples: int, rate: float, members: object) -> None:
        asked.append(members)
        before_step(self, samples, rate, members)  # type: ignore[arg-type]

    def counted_shape(self: ADMM, *given: object) -> None:
        shaped.append(given)
        shape_gradient(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(WorkerSession, "before_step", counted)
    monkeypatch.setattr(ADMM, "shape_gradient", counted_shape)
    found = simulate_script(Scenario(2, strategy, script=str(JOB)))
    steps = sum(worker.steps for worker in found.workers.values())
    assert steps and len(asked) == steps
    assert len(shaped) == (steps if strategy.startswith("admm") else 0), "ADMM's gradient is that of loss and penalty"
