"""Batches of a global batch: each sample once per pass, no waiting for each other, and what is refused."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_batches import LENGTH, Counter, Waits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import taut
from taut.errors import Misuse
from taut.strategies.allreduce.round_speeds import RoundSpeeds
from taut.strategies.allreduce.sync_state import SyncState
from taut.strategies.local import Wish
from taut.strategies.registry import REGISTRY, parse
from taut.supervisor.data.leases import Leases
from taut.worker.data.batch_share import BatchShare
from taut.worker.data.batches import BatchPlan, Dealer
from taut.worker.data.global_batch import GlobalShare
from taut.worker.data.sampling import whole


class Reader:
    """A worker whose batches change in size from one to the next, and that reads up to ``ahead`` before it trains."""

    def __init__(self, leases: Leases, rank: int, ahead: int, sizes: list[int]) -> None:
        self.pace, self.sizes = BatchShare(16, 2), deque(sizes)
        order = whole(LENGTH, shuffle=True)[1]
        plan = BatchPlan(LENGTH, 4, 0, 2, last=True, order=order, drop_last=False, pace=self.pace)
        self.share = GlobalShare(Dealer(Counter(leases, rank), seed=0), plan)
        self.ahead, self.pipe, self.seen = ahead, deque[list[int]](), list[int]()

    def turn(self) -> bool:
        """Train on a batch, or wait; return whether anything happened."""
        self.pace.exact = self.sizes[0]
        self.sizes.rotate()
        try:
            while len(self.pipe) <= self.ahead:
                self.pipe.append(next(self.share).tolist())
        except StopIteration:
            pass
        except Waits:
            return False
        if self.pipe:
            batch = self.pipe.popleft()
            assert self.share.handed() == len(batch)
            self.seen += batch
            assert self.share.trained() == len(batch)
        return True


SIZES = st.lists(st.integers(1, 16), min_size=1, max_size=5)


@given(st.lists(st.booleans(), max_size=60), st.integers(0, 4), st.integers(0, 4), SIZES, SIZES)
def test_each_sample_comes_once_per_pass_and_nobody_stands_still(
    turns: list[bool], ahead: int, other: int, sizes: list[int], others: list[int]
) -> None:
    leases = Leases()
    readers = [Reader(leases, 0, ahead, sizes), Reader(leases, 1, other, others)]
    for second in turns:
        readers[second].turn()
    while not all(reader.share.over and not reader.pipe for reader in readers):
        moved = [reader.turn() for reader in readers]
        assert any(moved), "each waits for the other"
    assert sorted(readers[0].seen + readers[1].seen) == sorted(2 * list(range(LENGTH)))
    assert leases.samples_undone == 0


def test_batches_go_over_the_ends_of_leases() -> None:
    reader = Reader(Leases(), 0, 0, [7])
    reader.pace.exact = 7
    batches = []
    for batch in reader.share:
        batches.append(len(batch))
        reader.share.trained()
    assert batches == [7] * (2 * LENGTH // 7) + [2 * LENGTH % 7]


@given(st.lists(st.integers(2, 16), min_size=1, max_size=5))
def test_no_batch_has_one_sample_where_there_are_more(sizes: list[int]) -> None:
    """Batch norm cannot train on one."""
    reader, batches = Reader(Leases(), 0, 0, sizes), list[int]()
    while not (reader.share.over and not reader.pipe):
        seen = len(reader.seen)
        reader.turn()
        batches.append(len(reader.seen) - seen)
    assert sum(batches) == 2 * LENGTH
    assert 1 not in batches, batches


def agreed(samples: list[int], global_batch: int) -> SyncState:
    """The state after a round to which workers gave so many samples."""
    states = [
        SyncState(None, [], [Wish([0.1])], global_batch=global_batch, speed=5.0 * (number > 0))  # type: ignore[arg-type]
        for number, _ in enumerate(samples)
    ]
    heads = [state.head(given) for state, given in zip(states, samples, strict=True)]
    states[0].agree([sum(each) for each in zip(*heads, strict=True)], sum(samples), len(samples))
    return states[0]


def test_a_short_round_is_scaled_by_its_part_of_the_global_batch() -> None:
    assert agreed([20, 0, 10], 120).short == pytest.approx(30 / 120)
    assert agreed([60, 40, 20], 120).short == 1.0
    assert agreed([60, 40, 30], 120).short == 1.0, "never up"
    assert agreed([60, 40, 20], 0).short == 1.0, "without a global batch"


def test_the_speeds_of_a_round_are_summed_over_those_that_know_theirs() -> None:
    assert agreed([20, 0, 10], 120).speeds == RoundSpeeds(10.0, 2, 3)


def joined() -> taut.Worker:
    model = nn.Linear(2, 1)
    return taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1))


DATA = torch.arange(100.0).reshape(50, 2)


def test_a_worker_alone_has_the_whole_global_batch() -> None:
    with joined() as worker:
        sizes = [len(batch) for batch in worker.batches(DATA, global_batch=16)]
        assert sizes == [16, 16, 16, 2]
        assert len(worker.batches(DATA, global_batch=16)) == worker.total_steps(DATA, global_batch=16) == 4
        assert worker.total_steps(DATA, global_batch=16, epochs=2) == 7, "a batch goes over the end of a pass"


def test_a_loader_is_read_in_global_batches() -> None:
    loader = DataLoader(TensorDataset(DATA), batch_size=3)
    with joined() as worker:
        assert [len(batch) for (batch,) in worker.batches(loader, global_batch=20)] == [20, 20, 10]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batch_size": 4, "global_batch": 8}, "batch_size=4 and global_batch=8: expected one of them"),
        ({"global_batch": 0}, "global_batch=0: expected a whole number"),
        ({"global_batch": 2.5}, "global_batch=2.5: expected a whole number"),
        ({"global_batch": True}, "global_batch=True: expected a whole number"),
        ({"global_batch": 8, "drop_last": True}, "drop_last=True with global_batch"),
    ],
)
def test_what_cannot_be_shared_is_refused(given: dict[str, float], words: str) -> None:
    with joined() as worker:
        for ask in (worker.batches, worker.total_steps):
            with pytest.raises(Misuse, match=words):
                ask(DATA, **given)


def test_a_global_batch_smaller_than_the_number_of_workers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with joined() as worker:
        monkeypatch.setattr(type(worker), "workers", 3)
        with pytest.raises(Misuse, match="global_batch=2 with 3 workers"):
            worker.batches(DATA, global_batch=2)
        assert len(worker.batches(DATA, global_batch=30)) == 2, "one batch of each global batch"


def test_the_table_says_of_every_strategy_whether_parts_follow_speeds() -> None:
    page = (Path(__file__).parents[3] / "docs" / "worker.md").read_text().partition("### Global batch")[2]
    said: dict[str, str] = {}
    for row in re.findall(r"^\| (`.*) \| (by speed|equal) \|", page, re.MULTILINE):
        said |= dict.fromkeys(re.findall(r"`(\w+)`", row[0]), row[1])
    choices = {name: parse(name) for name in REGISTRY}
    shares = {name: each.is_method and each.method().shares_speeds for name, each in choices.items()}
    assert said == {name: "by speed" if each else "equal" for name, each in shares.items()}
