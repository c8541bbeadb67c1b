"""Scripts in virtual time: the runtime's own code, the same trace every time, churn survived."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from taut.collectives.ring import dense_ring_nbytes
from taut.errors import Misuse, RunFailed
from taut.simulator.faults import Fail, Fault, Join, Pause
from taut.simulator.models.costs import CodecCost, Costs
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script
from taut.simulator.trace import Trace
from taut.strategies import REGISTRY

JOB = str(Path(__file__).parents[1] / "tiny_job.py")
PLAIN = Scenario(script=JOB, speeds=Speeds(step_s=0.01), links=Links(Link(1e9, 1e-4)))
SHORTER = {"diloco": "diloco:every=5", "easgd": "easgd:every=4", "codistillation": "codistillation:every=5"}


def traced(scenario: Scenario) -> list[str]:
    trace = Trace({"seed": scenario.seed})
    simulate_script(scenario, trace=trace)
    return list(trace.lines())


@pytest.mark.parametrize("strategy", sorted(REGISTRY))
def test_every_strategy_trains_and_ends(strategy: str) -> None:
    found = simulate_script(replace(PLAIN, strategy=SHORTER.get(strategy, strategy)))
    assert found.error == "" and not found.gone
    assert sum(each.samples for each in found.workers.values()) == 2 * 512, "each sample once per pass"
    assert found.validation is not None and found.validation.chosen is not None
    assert found.validation.chosen > 0.5
    for each in found.workers.values():
        parts = (each.compute_s, each.encode_s, each.send_s, each.wait_s, each.merge_s, each.data_s)
        assert sum(parts) == pytest.approx(each.wall_s)
        assert each.compute_s == pytest.approx(0.01 * each.steps), "a step takes what the model of the machine says"


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_bytes_are_compared_with_a_ring_all_reduce_of_the_same_steps(workers: int) -> None:
    for each in simulate_script(replace(PLAIN, workers=workers)).workers.values():
        assert each.bytes_dense == each.steps * dense_ring_nbytes(workers, parameters=3 * 16 + 16 + 16 * 3 + 3)
        assert (each.staleness == 0.0) == (workers == 1), "one worker alone waits for nobody's updates"


@pytest.mark.parametrize(
    "strategy",
    [
        "dpsgd",
        "sync for 5 steps, then async",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("async", "sync")),
    ],
)
def test_same_seed_same_trace(strategy: str) -> None:
    links = Links(Link(1e8, 1e-3, jitter_s=1e-3, loss=0.001))
    scenario = replace(PLAIN, strategy=strategy, links=links, speeds=Speeds(step_s=0.01, draw="lognormal:0.3"))
    lines = traced(scenario)
    assert lines == traced(scenario)
    assert lines != traced(replace(scenario, seed=1))


@pytest.mark.long
def test_the_same_trace_in_another_process(tmp_path: Path) -> None:
    code = "import sys; from test_script_run import PLAIN, traced; sys.stdout.write('\\n'.join(traced(PLAIN)))"
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # another than this process has
    environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parent)}
    made = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert made.stdout == "\n".join(traced(PLAIN)) and "compute" in made.stdout


CHURN: dict[str, tuple[Fault, ...]] = {
    "a death": (Fail(2, 0.2),),
    "two deaths": (Fail(2, 0.2), Fail(0, 0.3)),
    "a pause": (Pause(1, 0.1, 0.5),),
    "two join": (Join(2, 0.2),),
    "a death and a join": (Fail(1, 0.15), Join(1, 0.3)),
}


LAST, OTHERS = "a death and a join", ("dpsgd", "averaging:4", "gossip", "server")


@pytest.mark.parametrize(
    ("churn", "strategy"),
    [
        *((churn, strategy) for churn in CHURN for strategy in ("async", "sync")),
        *((LAST, strategy) for strategy in OTHERS),
        *(pytest.param(*pair, marks=pytest.mark.long) for pair in product(CHURN, OTHERS) if pair[0] != LAST),
    ],
)
def test_churn_is_survived(strategy: str, churn: str) -> None:
    found = simulate_script(replace(PLAIN, strategy=strategy, args=("--epochs", "3"), faults=CHURN[churn]))
    assert found.error == ""
    deaths = sum(isinstance(fault, Fail) for fault in CHURN[churn])
    joined = sum(fault.count for fault in CHURN[churn] if isinstance(fault, Join))
    assert len(found.gone) == deaths and len(found.workers) == 4 + joined
    done = sum(each.samples for each in found.workers.values())
    assert done >= 3 * 512 - deaths * 8 * 64, "only the last, unreported steps of the dead may be missing from the count"
    assert found.validation is not None and (found.validation.chosen or 0.0) > 0.7
    if strategy in ("async", "sync"):
        assert found.identical


def test_a_pause_costs_its_time() -> None:
    quiet = simulate_script(replace(PLAIN, strategy="sync"))
    paused = simulate_script(replace(PLAIN, strategy="sync", faults=(Pause(1, 0.1, 0.5),)))
    assert paused.wall_s == pytest.approx(quiet.wall_s + 0.5, rel=0.1)


def test_steps_bound_the_run() -> None:
    found = simulate_script(replace(PLAIN, steps=6))
    assert 24 <= sum(each.steps for each in found.workers.values()) <= 28


def together_per_s(found: Simulated) -> float:
    """Steps per second while all workers had data."""
    last = {rank: max(point.time_s for point in found.history if point.rank == rank) for rank in found.workers}
    upto_s = min(last.values())
    return sum(point.time_s <= upto_s for point in found.history) / upto_s


@pytest.mark.parametrize("strategy", ["sync:bucket_mib=0.0001", "async"])
def test_backward_in_a_thread_that_all_workers_share(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the simulation does not stand still, and its trace is the one of backward in each worker's thread."""
    scenario = replace(PLAIN, workers=3, strategy=strategy)
    expected, backward = traced(scenario), torch.Tensor.backward
    with ThreadPoolExecutor(1) as engine:
        monkeypatch.setattr(torch.Tensor, "backward", lambda *given: engine.submit(backward, *given).result(5.0))
        assert traced(scenario) == expected


def test_a_straggler_slows_sync_and_not_async() -> None:
    slow = Speeds(step_s=0.01, stragglers={1: 4.0})
    kept = {}
    for strategy in ("sync", "async"):
        even, uneven = (
            simulate_script(replace(PLAIN, strategy=strategy, speeds=speeds, args=("--samples", "1024")))
            for speeds in (PLAIN.speeds, slow)
        )
        kept[strategy] = together_per_s(uneven) / together_per_s(even)
    assert kept["sync"] == pytest.approx(0.25, rel=0.15)
    assert kept["async"] == pytest.approx((4 - 1 + 1 / 4) / 4, rel=0.1)


def test_scores_and_distances_are_of_the_run() -> None:
    found = simulate_script(replace(PLAIN, strategy="gossip"))
    assert found.scores[-1][1] > found.scores[0][1] and found.distances
    assert all(0.0 <= time_s <= found.wall_s + 1.0 for time_s, _ in found.scores)
    assert [point.time_s for point in found.history] == sorted(point.time_s for point in found.history)


def test_what_workers_print_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate_script(PLAIN, output=tmp_path)
    assert "worker 3 made" in (tmp_path / "worker-3.log").read_text()
    assert capsys.readouterr().out == ""


def test_a_script_that_raises_is_told(tmp_path: Path) -> None:
    found = simulate_script(replace(PLAIN, args=("--raise-at", "5")))
    assert "as asked for" in found.error


def test_scripts_that_cannot_run(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="a file that exists"):
        simulate_script(replace(PLAIN, script="nowhere.py"))
    empty = tmp_path / "empty.py"
    empty.write_text("print('nothing to see')")
    with pytest.raises(RunFailed, match="without joining"):
        simulate_script(replace(PLAIN, script=str(empty)))
    broken = tmp_path / "broken.py"
    broken.write_text("raise ValueError('at once')")
    with pytest.raises(ValueError, match="at once"):
        simulate_script(replace(PLAIN, script=str(broken)))


@pytest.mark.parametrize(("strategy", "codec"), [("sync", "topk:density=0.1"), ("choco", "int8")])
def test_encoding_vectors_takes_virtual_time(strategy: str, codec: str) -> None:
    """While it does, messages come; whoever encodes must not keep the others from handing them over."""
    name = codec.partition(":")[0]
    costs = Costs(codecs={name: CodecCost(0.0, 0.0, 1.0, fixed_s=0.003)})
    draw = Speeds(step_s=0.01, draw="lognormal:0.5")
    found = simulate_script(replace(PLAIN, strategy=strategy, codec=codec, costs=costs, speeds=draw))
    assert found.error == "" and not found.gone
    for each in found.workers.values():
        assert 0.8 * 0.003 * each.steps < each.encode_s < 0.003 * (each.updates_sent + 1)
