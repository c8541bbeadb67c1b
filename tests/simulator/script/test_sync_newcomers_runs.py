"""A worker joins synchronous training in mid-run, in whole runs in virtual time: schedules, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.simulator.result import Simulated
from taut.testing import FaultPlan, run_with_faults

JOB = Path(__file__).parents[1] / "scheduled_job.py"


def run(told: Path, *args: str, strategy: str = "sync") -> Simulated:
    plan = FaultPlan(1).join(1).at(3.0)
    script_args = ("--told", str(told), *args)
    return run_with_faults(JOB, plan, workers=3, strategy=strategy, args=script_args, step_s=0.2, limit_s=100.0)


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


@pytest.mark.parametrize(
    ("strategy", "args", "why"),
    [
        ("sync", ["--odd", "Adagrad"], "the optimizer Adagrad: expected Adam"),
        ("sync", ["--groups"], "groups of [1, 1] parameters: expected [2]"),
        ("sync", ["--broken", "load"], "(ArithmeticError: cannot take {'number': 1})"),
        ("sync", ["--broken", "give"], "whose state cannot be handed on"),
        ("sync", ["--grows"], "20 bytes of state: expected 8 bytes"),
        ("async", ["--grows"], "20 bytes of state: expected 8 bytes"),
        ("averaging", ["--grows"], "20 bytes of state: expected 8 bytes"),
    ],
)
def test_a_newcomer_that_does_not_fit_is_refused_and_nobody_else_is_hurt(
    tmp_path: Path, strategy: str, args: list[str], why: str
) -> None:
    told = tmp_path / "told"
    found = run(told, *args, strategy=strategy)
    assert found.outcome is not None and found.identical
    assert found.gone[3].startswith("refused: ") and why in found.gone[3]
    assert [row.state for row in found.outcome.workers.values()] == ["finished"] * 3 + ["gone"]
    assert found.outcome.model is not None and found.outcome.exit_code == 0
    assert found.outcome.failures == (f"worker 3: {found.gone[3]}",), "it is shown"
    assert found.outcome.samples_undone == 0 and found.outcome.samples_again == 0
    assert sorted(line.split()[0] for line in told.read_text().splitlines() if line != "started") == ["0", "1", "2"]
