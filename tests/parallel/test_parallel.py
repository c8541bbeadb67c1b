"""Law: the parts of an island compute what one process computes, forward and backward, and load into other islands."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from forked_zygotes import script_command
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from taut import parallel
from taut.errors import Misuse
from taut.parallel.island import Island, check_cut
from taut.parallel.pipeline import balanced_cuts

PROCESS = str(Path(__file__).with_name("island_process.py"))
ROUNDING = 2e-5


def run_island(size: int, folder: Path, checkpoint: Path, what: str) -> list[dict[str, float]]:
    """Run an island's processes, and return what each found."""
    store = folder / f"store-{size}-{what}"
    started = [
        subprocess.Popen(
            [*script_command(PROCESS), str(rank), str(size), str(store), str(checkpoint), what],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    ended = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0] * size, [err[-2000:] for _, err in ended]
    return [json.loads(out.splitlines()[-1]) for out, _ in ended]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, float]]]:
    folder = tmp_path_factory.mktemp("island")
    return folder / "parts.pt", run_island(2, folder, folder / "parts.pt", "save")


def test_two_parts_compute_what_one_process_computes(saved: tuple[Path, list[dict[str, float]]]) -> None:
    for found in saved[1]:
        assert len(found) > 50
        assert {name: value for name, value in found.items() if not value < ROUNDING} == {}


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_checkpoint_of_two_parts_loads_into_another_number(
    size: int, saved: tuple[Path, list[dict[str, float]]], tmp_path: Path
) -> None:
    for found in run_island(size, tmp_path, saved[0], "load"):
        assert len(found) == 9
        assert {name: value for name, value in found.items() if not value < ROUNDING} == {}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(1, 4))
def test_cuts_are_the_best_that_there_are(sizes: list[int], parts: int) -> None:
    if parts > len(sizes):
        return
    cuts = balanced_cuts(sizes, parts)
    assert cuts[0] == 0 and cuts[-1] == len(sizes) and all(a < b for a, b in itertools.pairwise(cuts))

    def largest(at: list[int]) -> int:
        return max(sum(sizes[a:b]) for a, b in itertools.pairwise(at))

    def every(left: int, start: int) -> list[list[int]]:
        if left == 1:
            return [[len(sizes)]]
        return [[c, *rest] for c in range(start + 1, len(sizes)) for rest in every(left - 1, c)]

    assert largest(cuts) == min(largest([0, *rest]) for rest in every(parts, 0))


ISLAND = parallel.Island(0, 2)
TIED = nn.Linear(3, 3)
THERE = nn.Linear(4, 4, device="meta")
ON_ANOTHER_DEVICE = (
    lambda: parallel.columns(THERE, group=ISLAND),
    lambda: parallel.rows(THERE, group=ISLAND),
    lambda: parallel.filters(nn.Conv2d(4, 4, 1, device="meta"), group=ISLAND),
    lambda: parallel.paths([nn.Linear(4, 4), THERE], group=ISLAND),
    lambda: parallel.pipeline(nn.Sequential(nn.Linear(4, 4), THERE), group=ISLAND),
)


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (lambda: parallel.columns(nn.Linear(3, 1), group=ISLAND), "1 outputs in an island of 2 processes"),
        *((cut, "'weight' on meta in an island: expected a model on the processor") for cut in ON_ANOTHER_DEVICE[:3]),
        *((cut, "'1.weight' on meta in an island: expected a model on the processor") for cut in ON_ANOTHER_DEVICE[3:]),
        (lambda: parallel.columns(nn.Linear(3, 5), gather=False, group=ISLAND), "5 outputs that stay split"),
        (lambda: parallel.rows(nn.Linear(5, 3), split=True, group=ISLAND), "5 inputs that stay split"),
        (lambda: parallel.rows(nn.Conv2d(3, 3, 1)), "Conv2d to be cut by columns or rows"),
        (lambda: parallel.filters(nn.Linear(3, 3)), "Linear to be cut by filters"),
        (lambda: parallel.filters(nn.Conv2d(4, 4, 1, groups=2)), "Conv2d with 2 groups to be cut by filters"),
        (lambda: parallel.paths([nn.Linear(3, 3)], group=ISLAND), "1 paths in an island of 2 processes"),
        (lambda: parallel.paths([nn.Linear(3, 3)], combine="mean"), "paths combined by 'mean'"),
        (lambda: parallel.pipeline(nn.Linear(3, 3)), "a pipeline of Linear"),
        (lambda: parallel.pipeline(nn.Sequential(nn.Linear(3, 3)), group=ISLAND), "1 layers in 2 stages"),
        (lambda: parallel.pipeline(nn.Sequential(nn.Linear(3, 3)), stages=2), "2 stages"),
        (
            lambda: parallel.pipeline(nn.Sequential(TIED, nn.Linear(3, 3), TIED), group=ISLAND),
            "'weight', of shape (3, 3), in two stages of different processes: expected weights that are tied within one",
        ),
        (lambda: parallel.paths([TIED, TIED], group=ISLAND), "'weight', of shape (3, 3), in two paths of different"),
        (lambda: parallel.pipeline(nn.Sequential(nn.Linear(3, 3)), microbatches=0), "0 micro-batches"),
        (lambda: parallel.pipeline(nn.Sequential(nn.Linear(3, 3)), schedule="zigzag"), "schedule 'zigzag'"),
        (
            lambda: parallel.pipeline(nn.Sequential(nn.Linear(3, 3)), microbatches=3).loss(
                torch.zeros(4, 3), torch.zeros(4, 3), nn.functional.mse_loss
            ),
            "a batch of 4 in 3 micro-batches",
        ),
        (lambda: parallel.scatter(nn.Linear(3, 3), {}), "a state_dict without 'bias'"),
        (
            lambda: parallel.scatter(nn.Linear(3, 3), {"weight": torch.zeros(2, 3), "bias": torch.zeros(3)}),
            "weight of shape (2, 3)",
        ),
    ],
)
def test_what_cannot_be_cut_is_named(cut: object, words: str) -> None:
    with pytest.raises(Misuse) as raised:
        cut()  # type: ignore[operator]
    assert words in str(raised.value)


@pytest.fixture
def pair() -> Iterator[Island]:
    """An island of two in which this process is the first, and the other one is made up."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        yield Island(0, 2)
    finally:
        dist.destroy_process_group()


def tied() -> nn.ModuleDict:
    model = nn.ModuleDict({"embedding": nn.Embedding(8, 4), "head": nn.Linear(4, 8, bias=False)})
    model["head"].weight = model["embedding"].weight
    return model


def test_a_layer_that_is_tied_and_then_cut_is_refused(pair: Island) -> None:
    for cut in (parallel.columns, parallel.rows):
        model = tied()
        cut(model["head"], group=pair)
        with pytest.raises(Misuse, match=r"'embedding.weight', of shape \(8, 4\), tied to a layer that was then cut"):
            check_cut(model)
    first, second = nn.Conv1d(2, 2, 3), nn.Conv1d(2, 2, 3)
    second.weight = first.weight
    convolutions = nn.Sequential(first, parallel.filters(second, group=pair))
    with pytest.raises(Misuse, match=r"'0\.weight'"):
        check_cut(convolutions)


def test_layers_that_are_cut_and_not_tied_are_taken(pair: Island) -> None:
    model = tied()
    model["head"].weight = nn.Parameter(model["embedding"].weight.detach().clone())
    parallel.columns(model["head"], group=pair)
    check_cut(model)
    whole = tied()
    parallel.columns(whole["head"], group=Island(0, 1))
    check_cut(whole)
