"""Two processes of `taut run` train a pytree; and workers that come in mid-run, in virtual time."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from two_processes import KINDS, train_by_two

from taut.testing import FaultPlan, run_with_faults

JOB = Path(__file__).with_name("jax_job.py")
EXAMPLES = Path(__file__).parents[3] / "examples"


def told(path: Path) -> list[list[str]]:
    return [line.split() for line in sorted(path.read_text().splitlines())]


@pytest.mark.parametrize(("strategy", "codec"), KINDS)
def test_two_processes_end_with_one_model(tmp_path: Path, strategy: str, codec: str) -> None:
    model = train_by_two(tmp_path, JOB, strategy, codec, "--told", str(tmp_path / "told"))
    assert {name: each.shape for name, each in model.items()} == {"weight": (4, 1), "bias": (1,)}
    off = model["weight"].ravel() - np.float32([1.0, 2.0, -1.0, 0.5]), model["bias"] - 3
    assert sum(np.square(each).sum() for each in off) < 0.5 * 15.25, "the squares of what is to be learned"
    rows = told(tmp_path / "told")
    assert [row[0] for row in rows] == ["0", "1"]
    ends = [np.frombuffer(bytes.fromhex(row[2]), np.float32) for row in rows]
    np.testing.assert_allclose(*ends, atol=1e-5 if (strategy, codec) == ("async", "dense") else 0.0)
    np.testing.assert_array_equal(ends[0], np.concatenate([model["bias"], model["weight"].ravel()]))


@pytest.mark.parametrize("strategy", ["async", "averaging:every=4", "gossip", "codistillation:every=5"])
def test_the_script_may_make_its_own_steps(tmp_path: Path, strategy: str) -> None:
    args = ("--how", "exchange", "--told", str(tmp_path / "told"))
    found = run_with_faults(JOB, FaultPlan(1), workers=2, strategy=strategy, args=args)
    if strategy.startswith("codistillation"):
        assert "without its teachers" in found.gone[0]
        return
    assert not found.error and not found.gone and sum(int(row[1]) for row in told(tmp_path / "told")) == 160


def test_under_sync_the_script_is_asked_for_an_optimizer(tmp_path: Path) -> None:
    args = ("--how", "exchange", "--told", str(tmp_path / "told"))
    found = run_with_faults(JOB, FaultPlan(1), workers=2, strategy="sync", args=args)
    assert "without an optimizer under sync" in found.gone[0] and "taut.jax.join(params, optimizer)" in found.gone[0]


def test_a_newcomer_under_sync_is_given_the_state_of_optax(tmp_path: Path) -> None:
    args = ("--told", str(tmp_path / "told"), "--epochs", "12")
    plan = FaultPlan(1).join(1).at(1.0)
    found = run_with_faults(JOB, plan, workers=2, strategy="sync", args=args, step_s=0.1)
    rows = told(tmp_path / "told")
    assert found.identical and len(rows) == 3 and 0 < int(rows[2][1]) < int(rows[0][1])
    assert len({row[2] for row in rows}) == len({row[3] for row in rows}) == 1 and int(rows[0][3], 16)


def test_before_a_phase_of_equal_steps_the_state_of_optax_is_averaged(tmp_path: Path) -> None:
    args = ("--told", str(tmp_path / "told"))
    found = run_with_faults(JOB, FaultPlan(1), workers=2, strategy="async for 12 steps, then sync", args=args)
    rows = told(tmp_path / "told")
    assert found.identical and len({row[3] for row in rows}) == 1 and int(rows[0][3], 16)


def test_the_example_learns(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "jax_flax.py"), run_name="__main__")
    assert float(capsys.readouterr().out.split()[-1]) > 0.97
