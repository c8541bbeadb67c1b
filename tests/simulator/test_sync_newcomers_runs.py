"""A worker joins synchronous training in mid-run, in whole runs in virtual time: schedules, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.simulator.result import Simulated
from taut.testing import FaultPlan, run_with_faults

JOB = Path(__file__).with_name("scheduled_job.py")


def run(told: Path, *args: str) -> Simulated:
    plan = FaultPlan(1).join(1).at(3.0)
    script_args = ("--told", str(told), *args)
    return run_with_faults(JOB, plan, workers=3, strategy="sync", args=script_args, step_s=0.2, limit_s=100.0)


@pytest.mark.parametrize("names_it", [True, False])
def test_the_schedule_goes_on_where_the_others_are_if_it_is_named(tmp_path: Path, names_it: bool) -> None:
    told = tmp_path / "told"
    found = run(told, *(["--names-it"] if names_it else []))
    assert found.error == "" and found.identical
    lines = [line for line in told.read_text().splitlines() if line != "started"]
    rows = {rank: (steps, at) for rank, steps, at in (map(int, line.split()) for line in lines)}
    assert sorted(rows) == [0, 1, 2, 3]
    steps, at = rows[3]
    assert 0 < steps < rows[0][0]
    assert (at > steps + 5) == names_it and (names_it or at == steps)


def test_another_optimizer_ends_the_newcomer_and_not_the_others(tmp_path: Path) -> None:
    found = run(tmp_path / "told", "--odd", "Adagrad")
    assert found.outcome is not None and found.identical
    assert "the optimizer Adagrad: expected Adam" in found.gone[3]
    assert [row.state for row in found.outcome.workers.values()] == ["finished"] * 3 + ["gone"]
    assert found.outcome.model is not None
