"""Streams: shards are leased as a whole, each once per pass; a stream of a worker's own is read by it alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scripts import ran
from torch.utils.data import DataLoader, IterableDataset

import taut
from taut.data import Shards
from taut.errors import Misuse
from taut.simulator.faults import Fail, Fault
from taut.worker.data.batches import BatchPlan
from taut.worker.data.own_data import OwnDealer
from taut.worker.data.reading import data_of
from taut.worker.data.streams import ShardShare

SHARDED = """
seen = []
def read(name):
    first = 10 * int(name)
    for number in range(first, first + 1 + int(name) % 7):  # of different lengths
        yield number, x[number % 512], y[number % 512]
files = taut.data.Shards([str(number) for number in range(40)], read)
with taut.join(model, optimizer) as worker:
    for numbers, inputs, targets in worker.batches(files, batch_size=3, epochs=2):
        assert len({int(number) // 10 for number in numbers}) == 1, "a batch of two shards"
        seen += numbers.tolist()
        worker.step(F.cross_entropy(model(inputs), targets))
report(seen=len(seen), sum=sum(seen), samples=worker.samples)
"""
EACH = [10 * shard + number for shard in range(40) for number in range(1 + shard % 7)]
OWN = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for number in range(20 + 10 * worker.rank):
            yield number, x[number], y[number]
seen = 0
with taut.join(model, optimizer) as worker:
    for numbers, inputs, targets in worker.batches(Stream(), batch_size=8, epochs=2, own=True):
        seen += len(numbers)
        worker.step(F.cross_entropy(model(inputs), targets))
report(seen=seen, rank=worker.rank, samples=worker.samples)
"""


@pytest.mark.parametrize(("how", "faults"), [("sync", ()), ("async", ()), ("async", (Fail(1, 0.2),))])
def test_every_shard_is_trained_on_in_each_pass(how: str, faults: tuple[Fault, ...], tmp_path: Path) -> None:
    found = ran(tmp_path, SHARDED, how, faults=faults)
    assert ("silent" in found.error) if faults else (found.error == "")
    told = [each for each in found.told if each]  # a worker that failed has told nothing
    assert len(told) == 2 - len(faults) and all(each["seen"] == each["samples"] > 0 for each in told)
    if not faults:
        assert sum(each["seen"] for each in told) == 2 * len(EACH)
        assert sum(each["sum"] for each in told) == 2 * sum(EACH)


@pytest.mark.parametrize("how", ["sync", "async"])
def test_each_worker_reads_its_own_stream(how: str, tmp_path: Path) -> None:
    found = ran(tmp_path, OWN, how)
    assert found.error == ""
    assert sorted((each["rank"], each["seen"], each["samples"]) for each in found.told) == [(0, 40, 40), (1, 60, 60)]


ENDLESS = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            yield x[0], y[0]
with taut.join(model, optimizer) as worker:
    for inputs, targets in worker.batches(Stream(), batch_size=8, own=True):
        worker.step(F.cross_entropy(model(inputs), targets))
        if worker.steps == 20 + 10 * worker.rank:
            break
report(steps=worker.steps)
"""


def test_an_endless_stream_is_left_by_each_worker_when_it_likes(tmp_path: Path) -> None:
    found = ran(tmp_path, ENDLESS, "async")
    assert found.error == "" and sorted(each["steps"] for each in found.told) == [20, 30]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 3), st.data())
def test_a_shard_that_was_begun_is_read_again_after_a_resume_and_no_other(
    lengths: list[int], size: int, drawn: Any
) -> None:
    shards = Shards(range(len(lengths)), lambda shard: [100 * shard + each for each in range(lengths[shard])])
    data = data_of(shards, size, False)
    plan = BatchPlan(data.length, 1, 0, 2, True, data.order, False)

    def trained(dealer: OwnDealer, most: int = 1_000) -> list[int]:
        share, seen = ShardShare(dealer, plan), list[int]()
        for _, batch in zip(range(most), data.read(share, 0), strict=False):
            assert share.handed() == len(batch) == share.trained()
            seen += batch.tolist()
        return seen

    whole = 2 * [100 * shard + each for shard, length in enumerate(lengths) for each in range(length)]
    assert trained(OwnDealer(None, 0)) == whole
    first, second = OwnDealer(None, 0), OwnDealer(None, 0)
    before = trained(first, drawn.draw(st.integers(0, len(whole))))
    second.begin_at(*first.position())
    after = trained(second) if first.position()[0] < 2 else []
    again = len(before) + len(after) - len(whole)
    assert before[: len(before) - again] + after == whole
    assert again <= max(lengths) and len({sample // 100 for sample in before[len(before) - again :]}) <= 1


class Numbers(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(torch.arange(7.0))


def batches(*given: Any, **options: Any) -> Any:
    model = torch.nn.Linear(1, 1)
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1)) as worker:
        made = worker.batches(*given, **options)
        return [(batch.tolist(), made.follows if "order" in options else None) for batch in made]


def test_a_loader_of_a_stream_is_read_as_torch_does() -> None:
    two = batches(DataLoader(Numbers(), batch_size=3, drop_last=True), own=True, epochs=2)
    assert [batch for batch, _ in two] == 2 * [[0, 1, 2], [3, 4, 5]]
    assert [batch for batch, _ in batches(DataLoader(Numbers(), batch_size=None), own=True)] == list(range(7))
    (both,) = [{number for batch, _ in batches(DataLoader(Numbers(), 4, num_workers=1), own=True) for number in batch}]
    assert both == set(range(7))


def test_in_order_a_shard_begins_where_nothing_is_carried_over() -> None:
    found = batches(Shards([0, 10], lambda first: torch.arange(first, first + 3)), 2, order="sequential")
    assert found == [([0, 1], False), ([2], True), ([10, 11], False), ([12], True)]


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (
            Numbers(),
            {},
            "an IterableDataset: expected own=True: each worker reads the stream for itself; or leased by shard",
        ),
        (DataLoader(Numbers(), 2), {}, "an IterableDataset: expected own=True"),
        (DataLoader(Numbers(), 2), {"own": True, "batch_size": 3}, "those of the DataLoader alone"),
        (Numbers(), {"own": True}, "without batch_size"),
        (Numbers(), {"own": True, "batch_size": 2, "shuffle": True}, "shuffle where it is made"),
        (Shards([1], iter), {"global_batch": 4}, "data with an index"),
        (Shards([1], iter), {"batch_size": 4, "sampler": [0]}, "leave sampler out"),
        (Shards([1], iter), {"batch_size": 4, "num_workers": 2}, "each shard is read by one process"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(given: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(Misuse, match=words.replace("(", r"\(")):
        batches(given, **options)


def test_a_list_of_shards_is_asked_for() -> None:
    for shards in ("a.txt", [], 3):
        with pytest.raises(Misuse, match="a list of at least one shard"):
            Shards(shards, iter)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="a function that takes a shard"):
        Shards(["a"], "b")  # type: ignore[arg-type]
    with taut.join(torch.nn.Linear(1, 1)) as worker, pytest.raises(TypeError, match="cannot be counted"):
        len(worker.batches(Shards([1], iter), 2))
