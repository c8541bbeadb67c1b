"""A run of one: the user's loop in every form that people write, and what cannot work."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import taut
from taut.core.messages import Done, Failed
from taut.errors import Misuse, NonFiniteLoss
from taut.worker.torch_worker import TorchWorker

X = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
Y = (X.sum(1) > 0).long()


def parts(**kwargs: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, **kwargs)


class Rows(Dataset):
    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return X[index], Y[index]


@pytest.mark.parametrize("data", [(X, Y), (X.numpy(), Y.numpy()), TensorDataset(X, Y), Rows(), DataLoader(Rows(), 8)])
def test_every_sample_comes_once_per_pass(data: object) -> None:
    model, optimizer = parts()
    seen = []
    with taut.join(model, optimizer) as worker:
        for x, y in worker.batches(data, batch_size=8, epochs=2):
            assert len(x) == len(y) <= 8
            seen += [tuple(row) for row in torch.as_tensor(x).tolist()]
            worker.exchange(1.0)
    assert sorted(seen) == sorted(2 * [tuple(row) for row in X.tolist()])
    assert worker.samples == 100
    assert (worker.rank, worker.workers, worker.stopping) == (0, 1, False)


def test_passes_by_an_outer_loop_differ_in_order_and_repeat_by_seed() -> None:
    def orders(seed: int) -> list[list[float]]:
        model, optimizer = parts()
        with taut.join(model, optimizer, seed=seed) as worker:
            return [[v for x in worker.batches(X[:, 0], batch_size=10) for v in x.tolist()] for _ in range(2)]

    first, second = orders(3)
    assert first != second
    assert sorted(first) == sorted(second)
    assert orders(3) == [first, second] != orders(4)


def test_the_same_steps_as_a_plain_loop() -> None:
    model, optimizer = parts(momentum=0.9)
    with taut.join(model, optimizer) as worker:
        for x, y in worker.batches((X, Y), batch_size=10, epochs=3, shuffle=False):
            worker.step(F.cross_entropy(model(x), y), clip_norm=0.5)
    plain, plain_optimizer = parts(momentum=0.9)
    for _ in range(3):
        for at in range(0, 50, 10):
            F.cross_entropy(plain(X[at : at + 10]), Y[at : at + 10]).backward()
            nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
            plain_optimizer.step()
            plain_optimizer.zero_grad()
    assert torch.equal(model.weight, plain.weight)
    assert worker.steps == 15


def test_time_split_sums_to_the_wall_time() -> None:
    model, optimizer = parts()
    with taut.join(model, optimizer) as worker:
        for x, y in worker.batches((X, Y), batch_size=10):
            worker.step(F.cross_entropy(model(x), y))
    made = worker.statistics()
    split = made.compute_s + made.encode_s + made.send_s + made.wait_s + made.merge_s + made.data_s
    assert split == pytest.approx(made.wall_s)
    assert made.compute_s > 0 < made.data_s


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_changes_nothing(bad: float) -> None:
    model, optimizer = parts()
    before = model.weight.clone()
    with pytest.raises(NonFiniteLoss, match="learning rate"), taut.join(model, optimizer) as worker:
        worker.step(model(X).sum() * bad)
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize(
    ("loss", "word"),
    [
        (lambda out: 0.25, r"step\(0.25\).*worker.exchange\(loss\) takes numbers"),
        (lambda out: out.sum().item(), "without .item"),
        (lambda out: out.sum().detach(), "without gradients"),
        (lambda out: out.sum(1), r"shape \(50,\).*loss.mean"),
        (lambda out: [out.sum()], r"step\(list\)"),
    ],
)
def test_what_is_no_loss_is_refused(loss: Callable[[torch.Tensor], Any], word: str) -> None:
    model, optimizer = parts()
    with taut.join(model, optimizer) as worker:
        with pytest.raises(Misuse, match=word):
            worker.step(loss(model(X)))
        assert worker.steps == 0
        worker.exchange(0.25)
        assert worker.loss == 0.25 == worker.statistics().loss
        assert worker.step(model(X).square().sum()) == worker.loss != 0.25


def test_a_worker_alone_is_the_main_one(capsys: pytest.CaptureFixture[str]) -> None:
    model, optimizer = parts()
    with taut.join(model, optimizer) as worker:
        assert worker.is_main and worker.device == torch.device("cpu")
        worker.print("here", worker.rank, sep="-")
    assert capsys.readouterr().out == "here-0\n"


def test_closures_go_through_exchange() -> None:
    model, _ = parts()
    optimizer = torch.optim.LBFGS(model.parameters())

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        loss.backward()
        return loss

    with taut.join(model, optimizer) as worker:
        with pytest.raises(Misuse, match="closure"):
            worker.step(F.cross_entropy(model(X), Y))
        worker.exchange(optimizer.step(closure), samples=50)
    assert worker.samples == 50


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda w: w.batches((X, Y)), "batch size"),
        (lambda w: w.batches((X, Y), batch_size=0), "batch_size=0"),
        (lambda w: w.batches((X, Y), batch_size=-3), "at least 1"),
        (lambda w: w.batches((X, Y), batch_size=4, epochs=0), "at least 1"),
        (lambda w: w.batches((X, Y[:3]), batch_size=4), "one length"),
        (lambda w: w.batches(X[:0], batch_size=4), "empty"),
        (lambda w: w.batches(iter([1]), batch_size=4), "map-style"),
        (
            lambda w: w.batches(type("Stream", (IterableDataset,), {"__iter__": lambda self: iter(())})(), batch_size=4),
            "leased",
        ),
    ],
)
def test_misuse_of_batches(call: object, word: str) -> None:
    model, optimizer = parts()
    with taut.join(model, optimizer) as worker, pytest.raises(Misuse, match=word):
        call(worker)


def test_join_wants_a_model_and_an_optimizer() -> None:
    model, optimizer = parts()
    with pytest.raises(Misuse, match="Optimizer"):
        taut.join(optimizer, model)
    with pytest.raises(Misuse, match="power of two"):
        taut.join(model, optimizer, codec="tether:tau=0.003")


@pytest.mark.parametrize(
    ("error", "said"),
    [(KeyboardInterrupt(), Done(leaving=True)), (Misuse("a", "b"), Failed("Misuse: a: expected b", unfit=True))],
)
def test_ctrl_c_before_the_first_step_is_leaving_and_no_failure(error: BaseException, said: object) -> None:
    """The start of the session calls ``fail`` with whatever comes then: also a SIGTERM to ``taut worker``."""
    told: list[object] = []
    worker: Any = TorchWorker.__new__(TorchWorker)
    worker._closed, worker._member, worker._hooks = False, None, SimpleNamespace(close=lambda: None)
    worker._masters = SimpleNamespace(close=lambda: None)
    comm = SimpleNamespace(say=told.append, close=lambda linger_s: None)
    worker._session = SimpleNamespace(comm=comm, merged=False)
    worker.fail(error)
    assert told == [said]


def test_batches_that_are_read_ahead_count_when_they_were_trained_on() -> None:
    model, optimizer = parts()
    with taut.join(model, optimizer) as worker:
        for _ in range(2):
            read, pipe, seen = worker.read_ahead((X, Y), 8, most=2), [], 0
            while not (read.over and not pipe):
                while len(pipe) <= 2 and not read.over:
                    pipe += [batch] if (batch := next(read, None)) is not None else []
                inputs, targets = pipe.pop(0)
                assert worker.step_samples() == len(inputs), "of the oldest, whatever was read after it"
                counted = worker.samples
                worker.step(F.cross_entropy(model(inputs), targets))
                assert worker.samples == counted
                read.trained()
                seen += len(inputs)
                assert worker.samples == counted + len(inputs)
            assert seen == len(X)
            assert worker.step_samples() == 1, "the pass is left"
    assert worker.samples == 2 * len(X)


def test_a_pass_that_is_left_early_counts_nothing_more() -> None:
    model, optimizer = parts()
    with taut.join(model, optimizer) as worker:
        read = worker.read_ahead((X, Y), 8)
        next(read)
        next(read)
        read.trained()
        read.close()
        assert list(read) == [] and worker.samples == 8 and worker.step_samples() == 1


def test_a_gradient_is_clipped_by_the_worker_as_by_torch() -> None:
    norms = []
    for clip in (taut.TorchWorker.clip, lambda worker, norm: nn.utils.clip_grad_norm_(worker.model.parameters(), norm)):
        model, optimizer = parts()
        with taut.join(model, optimizer) as worker:
            F.cross_entropy(model(X), Y).backward()
            clip(worker, 0.01)
            norms.append(nn.utils.get_total_norm([each.grad for each in model.parameters()]))
            optimizer.step()
            worker.exchange()
    assert norms[0] == norms[1] < 0.0101


@pytest.mark.parametrize("passes", [[20], [1] * 20])
def test_a_worker_alone_ends_its_loop_when_the_script_asks_for_the_end(passes: list[int]) -> None:
    model = torch.nn.Linear(1, 1)
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1)) as worker:
        for epochs in passes:
            for x in worker.batches(torch.ones(8, 1), batch_size=4, epochs=epochs):
                worker.step(model(x).mean())
                if worker.steps == 3:
                    worker.end_run("three steps")
    assert worker.steps == 3 and worker.stopping


def test_a_loop_of_the_script_s_own_ends_too() -> None:
    model = torch.nn.Linear(1, 1)
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1)) as worker:
        for _ in range(20):
            worker.step(model(torch.ones(4, 1)).mean())
            if worker.steps == 3:
                worker.end_run()
    assert worker.steps == 4, "the next step finds that the run is over"
