"""The same script of workers and channels gives the same in one process and in one process per worker.

Here the latter are workers in virtual time; ``test_channels_integration.py`` has real processes.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.simulator.result import Simulated
from taut.testing import FaultPlan, run_with_faults

JOB = Path(__file__).with_name("channels_job.py")
EXAMPLES = Path(__file__).parents[3] / "examples"
Told = dict[int, dict[str, Any]]


@st.composite
def connected(draw: st.DrawFn) -> tuple[int, str]:
    """A number of workers and edges that connect them: a tree, and some more."""
    workers = draw(st.integers(2, 5))
    tree = [(draw(st.integers(0, node - 1)), node) for node in range(1, workers)]
    pairs = st.tuples(st.integers(0, workers - 1), st.integers(0, workers - 1))
    more = [pair for pair in draw(st.lists(pairs, max_size=4)) if pair[0] != pair[1]]
    return workers, ",".join(f"{a}-{b}" for a, b in {*tree, *more})


def folder_in(parent: Path) -> Path:
    made = parent / f"told-{len(list(parent.iterdir()))}"
    made.mkdir()
    return made


def told(folder: Path) -> Told:
    return {int(file.stem): json.loads(file.read_text()) for file in folder.glob("*.json")}


def in_one(parent: Path, *args: object) -> Told:
    """Run the script in this process."""
    folder, before = folder_in(parent), sys.argv
    sys.argv = [str(JOB), *map(str, args), "--told", str(folder)]
    try:
        runpy.run_path(str(JOB), run_name="__main__")
    finally:
        sys.argv = before
    return told(folder)


def in_each(
    parent: Path, workers: int, *args: object, plan: FaultPlan | None = None, **more: Any
) -> tuple[Simulated, Told]:
    """Run the script with one worker in each process, in virtual time."""
    folder = folder_in(parent)
    given = [*map(str, args), "--told", str(folder)]
    found = run_with_faults(JOB, plan or FaultPlan(1), workers=workers, args=given, limit_s=300.0, **more)
    return found, told(folder)


@settings(max_examples=some(12), deadline=None)
@given(connected(), st.integers(1, 25))
def test_one_process_and_many_give_the_same(
    tmp_path_factory: pytest.TempPathFactory, wired: tuple[int, str], iterations: int
) -> None:
    parent = tmp_path_factory.mktemp("same")
    args = ("--workers", wired[0], "--edges", wired[1], "--iterations", iterations)
    found, each = in_each(parent, wired[0], *args)
    assert found.error == "" and not found.gone
    one = in_one(parent, *args)
    assert sorted(one) == sorted(each) == list(range(wired[0]))
    for rank in one:  # sums of whole numbers: the order of the updates does not show
        assert one[rank]["sums"] == each[rank]["sums"] and one[rank]["turns"] == each[rank]["turns"] == iterations


@settings(max_examples=some(8), deadline=None)
@given(connected(), st.integers(1, 40), st.data())
def test_updates_of_one_worker_come_in_order(
    tmp_path_factory: pytest.TempPathFactory, wired: tuple[int, str], iterations: int, data: st.DataObject
) -> None:
    parent, speaker = tmp_path_factory.mktemp("order"), data.draw(st.integers(0, wired[0] - 1))
    args = ("--workers", wired[0], "--edges", wired[1], "--iterations", iterations, "--speaker", speaker)
    _, each = in_each(parent, wired[0], *args)
    assert each == in_one(parent, *args), "the chain says in which order each worker included the updates"
    heard = {rank for rank, worker in each.items() if any(worker["sums"])}
    edges = [tuple(map(int, edge.split("-"))) for edge in wired[1].split(",")]
    assert heard == {speaker} | {a + b - speaker for a, b in edges if speaker in (a, b)}, "one hop, and no further"


def test_a_dead_neighbour_is_not_waited_for(tmp_path: Path) -> None:
    args = ("--workers", 3, "--edges", "0-1,1-2", "--iterations", 60)
    found, each = in_each(tmp_path, 3, *args, plan=FaultPlan(1).kill(1).at_step(20))
    assert set(found.gone) == {1} and sorted(each) == [0, 2]
    assert each[0]["turns"] == each[2]["turns"] == 60


def test_a_worker_that_raises_ends_alone(tmp_path: Path) -> None:
    args = ("--workers", 3, "--edges", "0-1,1-2", "--raises", 2)
    _, each = in_each(tmp_path, 3, *args)
    assert sorted(each) == [0, 1] and each[0]["sums"][:2] == [210.0, 210.0] and each[1]["sums"][2] == 3.0


def test_a_drained_run_ends_before_its_iterations(tmp_path: Path) -> None:
    args = ("--workers", 2, "--edges", "0-1", "--iterations", 10**6)
    found, each = in_each(tmp_path, 2, *args, steps=50)
    assert found.error == "" and sorted(each) == [0, 1]
    assert each[0]["sums"] == each[1]["sums"], "all that was sent is included"
    assert all(10 < worker["turns"] < 1000 for worker in each.values())


@pytest.mark.parametrize(
    ("workers", "more", "settings", "said"),
    [
        (2, (), {}, "--workers 2 for a script that wires 3 workers: expected as many processes as workers"),
        (3, (), {"strategy": "sync"}, "--strategy sync for a script that connects workers by channels"),
        (3, (), {"strategy": "independent"}, "expected async or ssp"),
        (3, (), {"topology": "ring"}, "--topology ring for a script that wires its own"),
        (3, (), {"codec": "topk"}, "--codec topk for a script that connects workers by channels"),
        (3, ("--own",), {}, "wired in another way"),
    ],
)
def test_runs_without_a_place_for_the_topology_are_refused(
    tmp_path: Path, workers: int, more: tuple[str, ...], settings: dict[str, str], said: str
) -> None:
    found, each = in_each(tmp_path, workers, "--workers", 3, "--edges", "0-1,1-2", *more, **settings)
    assert said in found.error + " ".join(found.gone.values())
    assert not each or more, "nobody trained"


def test_ssp_bounds_how_far_a_worker_may_be_ahead(tmp_path: Path) -> None:
    found, each = in_each(tmp_path, 2, "--workers", 2, "--edges", "0-1", strategy="ssp:2")
    assert found.error == "" and each[0]["sums"] == each[1]["sums"] == [210.0, 210.0]
