"""What of a DataLoader is taken over: everything that it says, or the script is told what to do instead."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

import taut
from taut.errors import Misuse
from taut.worker.data.reading import data_of

N = 48
X = torch.arange(N)


class Rows(Dataset):
    """Each sample is its index."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> int:
        return index


class Doubled(TensorDataset):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        return tuple(2 * each for each in super().__getitem__(index))


class Own(Sampler):
    def __iter__(self) -> Any:
        return iter(range(N))


class OwnBatches(Own):
    def __len__(self) -> int:
        return 1


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(range(N))


def joined(**more: Any) -> Any:
    model = torch.nn.Linear(1, 1)
    return taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1), **more)


def passes(data: Any, *args: Any, count: int = 2, seed: int = 0, **options: Any) -> list[list[list[int]]]:
    """The batches of each of ``count`` passes by an outer loop."""
    with joined(seed=seed) as worker:
        return [[torch.as_tensor(one).tolist() for one in worker.batches(data, *args, **options)] for _ in range(count)]


def flat(batches: list[list[int]]) -> list[int]:
    return [sample for batch in batches for sample in batch]


@pytest.mark.parametrize("sampler", [None, SequentialSampler(X), range(N)])
def test_an_order_without_shuffling_is_kept(sampler: Any) -> None:
    assert [flat(one) for one in passes(DataLoader(Rows(), 8, sampler=sampler))] == 2 * [list(range(N))]


@pytest.mark.parametrize("loader", [DataLoader(Rows(), 8, shuffle=True), DataLoader(TensorDataset(X), 8, shuffle=True)])
def test_shuffling_is_by_the_run_s_seed(loader: DataLoader) -> None:
    first, second = passes(loader, collate_fn=_plain)
    assert sorted(flat(first)) == list(range(N)) == sorted(flat(second))
    assert first != second
    assert passes(loader, collate_fn=_plain) == [first, second] != passes(loader, collate_fn=_plain, seed=1)
    assert flat(passes(loader, collate_fn=_plain, shuffle=False)[0]) == list(range(N))


def _plain(samples: list[Any]) -> torch.Tensor:
    return torch.tensor([int(one[0] if isinstance(one, tuple) else one) for one in samples])


@pytest.mark.parametrize("indices", [[5, 1, 40, 7, 33], torch.tensor([5, 1, 40, 7, 33])])
def test_a_subset_is_the_data_set(indices: Any) -> None:
    shuffled = passes(DataLoader(Rows(), 2, sampler=SubsetRandomSampler(indices)), count=8)
    assert {tuple(sorted(flat(one))) for one in shuffled} == {(1, 5, 7, 33, 40)}
    assert len({tuple(flat(one)) for one in shuffled}) > 1
    assert flat(passes(DataLoader(Rows(), 2, sampler=indices))[0]) == [5, 1, 40, 7, 33]
    with joined() as worker:
        assert len(worker.batches(DataLoader(Rows(), 2, sampler=SubsetRandomSampler(indices)), epochs=4)) == 12


def test_draws_with_weights_and_with_replacement() -> None:
    weights = [0.0] * (N - 2) + [1.0, 3.0]
    drawn = Counter(flat(passes(DataLoader(Rows(), 8, sampler=WeightedRandomSampler(weights, 4000)), count=1)[0]))
    assert set(drawn) == {N - 2, N - 1} and 2700 < drawn[N - 1] < 3300
    again, other = passes(DataLoader(Rows(), 8, sampler=RandomSampler(X, replacement=True, num_samples=4800)))
    assert again != other and len(flat(again)) == 4800
    assert set(flat(again)) == set(range(N)) and max(Counter(flat(again)).values()) > 110
    some = flat(passes(DataLoader(Rows(), 8, sampler=RandomSampler(X, num_samples=N + 2)))[0])
    assert sorted(some[:N]) == list(range(N)) and len(some) == N + 2


def test_the_last_batch_is_dropped_where_the_loader_says_so() -> None:
    assert [len(one) for one in passes(DataLoader(Rows(), 10, drop_last=True))[0]] == 4 * [10]
    assert [len(one) for one in passes(DataLoader(Rows(), 10, drop_last=True), drop_last=False)[0]] == [*4 * [10], 8]
    own = BatchSampler(SubsetRandomSampler(range(20)), 8, drop_last=True)
    first = passes(DataLoader(Rows(), batch_sampler=own))[0]
    assert [len(one) for one in first] == [8, 8] and set(flat(first)) < set(range(20))


def test_a_distributed_sampler_makes_way_and_that_is_said() -> None:
    sampler = DistributedSampler(Rows(), num_replicas=4, rank=1, shuffle=False)
    with pytest.warns(UserWarning, match="taut deals the data"):
        assert flat(passes(DataLoader(Rows(), 8, sampler=sampler), count=1)[0]) == list(range(N))


def test_collation_over_tensors() -> None:
    for data in (TensorDataset(X), (X,), (X.numpy(),)):
        made = passes(data, 8, shuffle=False, collate_fn=lambda samples: [-int(one[0]) for one in samples])
        assert flat(made[0]) == [-one for one in range(N)]
    assert flat(passes(DataLoader(TensorDataset(X), 8, collate_fn=_plain))[0]) == list(range(N))
    assert flat(passes(X, 8, shuffle=False, collate_fn=_plain)[0]) == list(range(N))


def test_what_a_data_set_makes_of_its_tensors_is_kept() -> None:
    with joined() as worker:
        assert [one.tolist() for (one,) in worker.batches(Doubled(X), N, shuffle=False)] == [(2 * X).tolist()]
        [batch] = worker.batches(DataLoader([torch.zeros(3)] * 5, 5))
        assert batch.shape == (5, 3), "a list in a DataLoader is one of samples"
        [batch] = worker.batches(DataLoader(TensorDataset(X), N))
        assert isinstance(batch, list) and torch.equal(batch[0], X)
        [batch] = worker.batches(DataLoader(np.arange(N), N))
        assert torch.equal(batch, X), "as the DataLoader converts it"


def _prepare(worker: int) -> None:
    torch.utils.data.get_worker_info().dataset.worker = worker


class Prepared(Rows):
    worker = -1

    def __getitem__(self, index: int) -> int:
        return self.worker


def test_processes_are_prepared_and_stay_if_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    from multiprocessing import process

    start = process.BaseProcess.start
    monkeypatch.setattr(process.BaseProcess, "start", lambda self: (started.append(self), start(self))[1])
    for persistent, processes in ((True, 2), (False, 6)):
        started.clear()
        loader = DataLoader(Prepared(), 8, num_workers=2, worker_init_fn=_prepare, persistent_workers=persistent)
        made = passes(loader, count=3)
        assert set(flat(flat(made))) == {0, 1}
        assert len(started) == processes


def test_two_loops_over_one_loader_with_persistent_processes() -> None:
    loader = DataLoader(Rows(), 8, num_workers=1, persistent_workers=True)
    with joined() as worker:
        pairs = [(a.tolist(), b.tolist()) for a, b in zip(worker.batches(loader), worker.batches(loader), strict=True)]
        assert worker.samples == 2 * N
    assert [flat([a for a, _ in pairs]), flat([b for _, b in pairs])] == 2 * [list(range(N))]


def test_a_generator_of_the_script_seeds_the_processes_and_is_left_alone() -> None:
    def drawn(seed: int) -> Any:
        generator = torch.Generator().manual_seed(seed)
        before = generator.get_state()
        loader = DataLoader(Rows(), 24, num_workers=1, generator=generator, collate_fn=_draw)
        made = passes(loader)
        assert torch.equal(generator.get_state(), before)
        return made

    assert drawn(1) == drawn(1) != drawn(2)


def _draw(samples: list[int]) -> torch.Tensor:
    return torch.randint(1 << 30, (2,))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda w: w.batches(DataLoader(Rows(), 8, sampler=Own())), ["Own as sampler", "without the sampler"]),
        (lambda w: w.batches(Rows(), 8, sampler=Own()), ["Own as sampler", "without the sampler"]),
        (lambda w: w.batches(DataLoader(Rows(), batch_sampler=OwnBatches())), ["OwnBatches", "collate_fn"]),
        (lambda w: w.batches(DataLoader(Rows(), batch_size=None)), ["batch_size=None", "samples\\[0\\]"]),
        (lambda w: w.batches(DataLoader(Rows(), 8, in_order=False)), ["in_order"]),
        (lambda w: w.batches(DataLoader(Stream(), 8)), ["IterableDataset", "own=True", "leased by shard"]),
        (lambda w: w.batches(Rows(), 8, num_worker=2), ["num_worker=", "num_workers"]),
        (lambda w: w.batches((X, X), 8, num_worker=2), ["num_worker=", "num_workers"]),
        (lambda w: w.batches(type("Mine", (DataLoader,), {"__iter__": iter})(Rows(), 8)), ["a Mine", "loader.dataset"]),
        (lambda w: w.batches(DataLoader(Rows(), 8, sampler=[N])), [f"below {N}"]),
        (
            lambda w: w.batches(DataLoader(Rows(), 8, sampler=WeightedRandomSampler([1.0], 1, replacement=False))),
            ["WeightedRandomSampler", "with replacement"],
        ),
        (
            lambda w: w.batches(DataLoader(Rows(), 8, sampler=WeightedRandomSampler([1.0], 1)), shuffle=True),
            ["shuffle=True", "one of the two"],
        ),
    ],
)
def test_what_cannot_be_right_is_refused(call: Any, words: list[str]) -> None:
    with joined() as worker, pytest.raises(Misuse) as refused:
        call(worker)
    for word in words:
        refused.match(word)


def test_a_split_has_a_digest_by_which_workers_are_compared() -> None:
    def digest(seed: int, data: Any = None) -> int:
        generator = torch.Generator().manual_seed(seed)
        return data_of(random_split(data or Rows(), [40, 8], generator=generator)[0], 8).samples

    assert digest(1) == digest(1) != digest(2) != 0
    assert data_of(Rows(), 8).samples == 0 == data_of(DataLoader(Rows(), 8, shuffle=True)).samples
    subsets = [data_of(DataLoader(Rows(), 8, sampler=SubsetRandomSampler(each))).samples for each in ([1, 2], [1, 3])]
    assert subsets[0] != subsets[1] and 0 not in subsets
    halves = [data_of(random_split(Rows(), [24, 24])[0] + Rows(), 8).samples for _ in range(2)]
    assert halves[0] != halves[1]


def test_a_share_has_a_length() -> None:
    with joined() as worker:
        assert len(worker.batches(Rows(), 10, epochs=3)) == 15
        assert len(worker.batches(Rows(), 10, drop_last=True)) == 4
        assert worker.total_steps(DataLoader(Rows(), 10), epochs=3) == 15
        assert worker.total_steps((X, X), 10, epochs=3, drop_last=True) == 12


def test_a_loop_that_is_left_early_counts_what_it_trained_on() -> None:
    with joined() as worker:
        for left_after in (3, 2):
            for count, _ in enumerate(worker.batches(X, 4), 1):
                worker.exchange(1.0)
                if count == left_after:
                    break
        assert worker.samples == 5 * 4
        assert sum(len(x) for x in worker.batches(X, 4)) == N, "the next pass is a whole one"


def test_batches_of_tensors_are_what_indexing_gives() -> None:
    rows = torch.randn(N, 3, 2)
    columns = (rows, rows.transpose(1, 2), rows.numpy(), torch.arange(N) % 2 == 0)
    with joined() as worker:
        for *batch, indices in worker.batches((*columns, X), batch_size=7):
            for picked, column in zip(batch, columns, strict=True):
                expected = column[indices.numpy() if isinstance(column, np.ndarray) else indices]
                assert np.array_equal(picked, expected) and type(picked) is type(column)
                assert not isinstance(picked, torch.Tensor) or picked.stride() == expected.stride()


def test_a_sampler_may_count_from_the_end() -> None:
    loader = DataLoader(TensorDataset(X), batch_size=4, sampler=SubsetRandomSampler([-1, -2, 3, 4]))
    with joined() as worker:
        assert sorted(int(each) for (batch,) in worker.batches(loader) for each in batch) == [3, 4, 46, 47]
