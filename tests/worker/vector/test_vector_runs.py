"""``taut.join_vector`` goes the way of ``taut.join``: the same weights, every strategy, faults. In virtual time."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from taut.simulator.result import Simulated
from taut.strategies import REGISTRY
from taut.testing import FaultPlan, run_with_faults

JOB = Path(__file__).with_name("vector_job.py")
EXAMPLES = Path(__file__).parents[3] / "examples"
SHORTER = {
    "diloco": "diloco:every=5",
    "easgd": "easgd:every=4",
    "codistillation": "codistillation:every=5",
    "sparseloco": "sparseloco:every=2",
}
OF_GRADIENTS = ("sync", "async for 5 steps, then sync", "admm", "dpsgd:momentum=quasi-global")


class Told(NamedTuple):
    """What a worker ended with."""

    rank: int
    steps: int
    weights: np.ndarray
    moved: np.ndarray


def run(
    folder: Path,
    how: str,
    strategy: str,
    workers: int = 3,
    plan: FaultPlan | None = None,
    epochs: int = 4,
    step_s: float = 0.01,
    **scenario: object,
) -> tuple[Simulated, list[Told]]:
    told = folder / f"{how}-{strategy}".replace(":", "-")
    args = ("--how", how, "--told", str(told), "--epochs", str(epochs))
    given = {"workers": workers, "strategy": strategy, "args": args, "step_s": step_s, "limit_s": 300.0, **scenario}
    found = run_with_faults(JOB, plan or FaultPlan(1), **given)  # type: ignore[arg-type]
    rows = [line.split() for line in sorted(told.read_text().splitlines())] if told.exists() else []
    arrays = [[np.frombuffer(bytes.fromhex(each), np.float32) for each in [*row[2:], ""][:2]] for row in rows]
    return found, [Told(int(row[0]), int(row[1]), *pair) for row, pair in zip(rows, arrays, strict=True)]


@pytest.mark.parametrize(
    ("strategy", "workers", "codec"), [("async", 1, ""), ("async", 1, "dense"), ("averaging", 2, ""), ("sync", 3, "")]
)
def test_the_weights_are_those_of_the_same_training_with_torch(
    tmp_path: Path, strategy: str, workers: int, codec: str
) -> None:
    _, of_torch = run(tmp_path, "torch", strategy, workers, codec=codec)
    for how in ("step", "exchange") if strategy != "sync" else ("step",):
        _, mine = run(tmp_path, how, strategy, workers, codec=codec)
        assert [told.steps for told in mine] == [told.steps for told in of_torch]
        for one, other in zip(mine, of_torch, strict=True):
            assert one.weights.tobytes() == other.weights.tobytes()
        assert np.abs(mine[0].weights - 3.0).max() < 1.5, "it has learned"


@pytest.mark.parametrize("strategy", sorted(REGISTRY))
def test_every_strategy_trains_an_array(tmp_path: Path, strategy: str) -> None:
    learns(tmp_path, "step", SHORTER.get(strategy, strategy))


@pytest.mark.parametrize("strategy", ["async", "gossip", "averaging", "server", "codistillation:every=5"])
def test_the_script_may_make_the_changes_itself(tmp_path: Path, strategy: str) -> None:
    learns(tmp_path, "exchange", strategy)


def learns(folder: Path, how: str, strategy: str) -> None:
    found, told = run(folder, how, strategy)
    assert found.error == "" and not found.gone and len(told) == 3
    assert sum(each.steps for each in told) >= 4 * 48
    assert max(np.abs(each.weights - 3.0).max() for each in told) < 2.0
    if found.identical:
        assert len({each.weights.tobytes() for each in told}) == 1


@pytest.mark.parametrize("strategy", OF_GRADIENTS)
def test_a_strategy_that_changes_gradients_asks_for_an_update_function(tmp_path: Path, strategy: str) -> None:
    found, told = run(tmp_path, "exchange", strategy)
    assert not told and "no worker is left" in found.error
    assert "without an update function under" in found.gone[0] and "call worker.step(gradient)" in found.gone[0]


@pytest.mark.parametrize("strategy", ["async", "sync", "gossip"])
def test_a_worker_that_dies_does_not_stop_the_others(tmp_path: Path, strategy: str) -> None:
    found, told = run(tmp_path, "step", strategy, plan=FaultPlan(1).kill(1).at_step(10), epochs=6)
    assert found.outcome is not None and found.outcome.model is not None and list(found.gone) == [1]
    assert [each.rank for each in told] == [0, 2]
    assert told[0].weights.tobytes() == told[1].weights.tobytes()
    assert found.outcome.samples_undone == 0


def test_a_newcomer_under_sync_is_given_what_the_update_function_keeps(tmp_path: Path) -> None:
    found, told = run(tmp_path, "momentum", "sync", plan=FaultPlan(1).join(1).at(1.0), epochs=12, step_s=0.1)
    assert found.identical and len(told) == 4
    assert 0 < told[3].steps < told[0].steps
    assert len({each.weights.tobytes() for each in told}) == 1
    assert len({each.moved.tobytes() for each in told}) == 1 and told[0].moved.any()


def test_before_a_phase_of_equal_steps_what_the_update_function_keeps_is_averaged(tmp_path: Path) -> None:
    found, told = run(tmp_path, "momentum", "async for 12 steps, then sync")
    assert found.identical and found.phase == 1
    assert len({each.moved.tobytes() for each in told}) == 1 and told[0].moved.any()


def test_the_example_learns_in_a_run_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "mlp_numpy.py"), run_name="__main__")
    assert float(capsys.readouterr().out.split()[-1]) > 0.95
