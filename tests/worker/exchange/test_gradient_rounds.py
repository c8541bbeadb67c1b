"""The driver of sync, in threads over the in-memory transport: whatever the loop looks like, it is one large batch."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from worker_threads import ThreadSeat, in_threads

from taut.codecs import parse as parse_codec
from taut.core.events import Heard
from taut.core.messages import Note
from taut.errors import Misuse, NonFiniteUpdate
from taut.strategies.allreduce.sync import Sync
from taut.strategies.delivery.channels import Channels
from taut.topologies.registry import parse as parse_topology
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.rejections import Rejections
from taut.worker.exchange.buckets import GradientBuckets
from taut.worker.exchange.gradients import GradientExchange
from taut.worker.exchange.torch_distributed import RENDEZVOUS, TorchDistributedGroup, check_cards
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.replica import Replica
from taut.worker.model.vector_views import FlatParamsCodec
from taut.worker.optimizer.joined import joined, members_of
from taut.worker.torch_worker import TorchWorker

Batch = tuple[torch.Tensor, torch.Tensor]
Loop = Callable[[TorchWorker, list[Batch]], None]
TINY = 1e-5  # MiB: a bucket for every two or three tensors of the network below


class Net(nn.Module):
    """``spare`` takes no part in the loss of even batches' workers; ``never`` in nobody's."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.spare, self.never = (nn.Linear(*s) for s in ((6, 8), (8, 3), (8, 3), (2, 2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.first(x))
        return self.second(hidden) + (self.spare(hidden) if len(x) % 2 else 0.0)


class SyncSession(ThreadSeat):
    def __init__(self, node: CommThread, params: FlatParams, method: Sync, codec: str) -> None:
        super().__init__(node, params)
        replica = Replica(params, parse_codec(codec), uses_codec=False)
        self.exchange = GradientExchange(method, replica, node, parse_topology("complete"), self.watch)
        if codec != "dense":
            self.exchange.local.coder = FlatParamsCodec(replica.codec, params, self.watch, node.rank, node.workers)
        self.phases = SimpleNamespace(changed=None)  # there is one


def train(
    method: Sync,
    optimizer: Callable[..., torch.optim.Optimizer],
    data: list[list[Batch]],
    loop: Loop,
    codec: str = "dense",
) -> list[Net]:
    """Every worker runs ``loop`` on its row of ``data`` in a thread; their models at the end."""
    models = [Net() for _ in data]

    def work(rank: int, node: CommThread) -> Callable[[], None]:
        session: Any = SyncSession(node, FlatParams(models[rank]), method, codec)
        worker = TorchWorker(models[rank], optimizer(models[rank].parameters()), session, seed=0)
        loop(worker, data[rank])
        return worker.close

    in_threads([Channels for _ in data], work)
    assert len({flat(model).tobytes() for model in models}) == 1, "replicas differ"
    return models


def flat(model: nn.Module) -> np.ndarray:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy().copy()


def batches(sizes: list[list[int]], seed: int = 1) -> list[list[Batch]]:
    made = torch.Generator().manual_seed(seed)
    return [[(torch.randn(n, 6, generator=made), torch.randint(3, (n,), generator=made)) for n in row] for row in sizes]


def alone(
    optimizer: Callable[..., torch.optim.Optimizer], steps: list[list[Batch]], clip: float | None = None
) -> np.ndarray:
    """One worker; the batches of a step are one."""
    model = Net()
    stepper = optimizer(model.parameters())
    for step in steps:
        stepper.zero_grad(set_to_none=True)
        samples = sum(len(x) for x, _ in step)
        for x, y in step:
            (F.cross_entropy(model(x), y) * len(x) / samples).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        stepper.step()
    return flat(model)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.02)


def both(parameters: Any) -> torch.optim.Optimizer:
    first, *others = parameters
    return joined([torch.optim.SGD([first], lr=0.1, momentum=0.9), torch.optim.AdamW(others, lr=0.02)])


def steps_of(data: list[list[Batch]]) -> list[list[Batch]]:
    longest = max(len(row) for row in data)
    return [[row[number] for row in data if number < len(row)] for number in range(longest)]


def with_samples(worker: TorchWorker, size: int) -> None:
    worker._given_samples = size  # as if `batches` had dealt them


def stepping(worker: TorchWorker, rows: list[Batch]) -> None:
    for x, y in rows:
        with_samples(worker, len(x))
        worker.step(F.cross_entropy(worker.model(x), y))


def own_loop(worker: TorchWorker, rows: list[Batch], overlapped: bool = False) -> None:
    for x, y in rows:
        with_samples(worker, len(x))
        worker.optimizer.zero_grad()
        loss = F.cross_entropy(worker.model(x), y)
        worker.backward(loss) if overlapped else loss.backward()
        worker.optimizer.step()
        worker.exchange(loss, samples=len(x))


SIZES = [[4, 5, 3, 8], [1, 2, 7], [2, 9, 6, 2, 5]]  # the workers run out of data at different times


@pytest.mark.parametrize("optimizer", [momentum, adamw, both])
@pytest.mark.parametrize("loop", [stepping, own_loop, lambda w, rows: own_loop(w, rows, overlapped=True)])
@pytest.mark.parametrize("bucket", [0.0, TINY])
def test_any_loop_is_one_large_batch(optimizer: Any, loop: Loop, bucket: float) -> None:
    data = batches(SIZES)
    models = train(Sync(bucket_mib=bucket), optimizer, data, loop)
    np.testing.assert_allclose(flat(models[0]), alone(optimizer, steps_of(data)), rtol=2e-4, atol=2e-6)
    assert torch.equal(models[0].never.weight, Net().never.weight), "what nobody used was moved"


def test_micro_batches_add_up_and_the_last_few_are_not_lost() -> None:
    data = batches([[2, 3, 4, 1, 5], [1, 1, 2, 6, 7]])  # every=2: two steps, and one of a single micro-batch
    models = train(Sync(every=2, bucket_mib=TINY), momentum, data, stepping)
    steps = [[row[number] for row in data for number in numbers] for numbers in ((0, 1), (2, 3), (4,))]
    np.testing.assert_allclose(flat(models[0]), alone(momentum, steps), rtol=2e-4, atol=2e-6)


def test_a_worker_that_idles_between_two_steps_adds_nothing_to_its_gradients() -> None:
    """A process of an island idles while it waits for the others of its island; the next round's messages come then."""
    data = batches([[4, 4, 4], [4, 4, 4]])

    def waiting(worker: TorchWorker, rows: list[Batch]) -> None:
        exchange = worker.exchange_now()
        assert exchange is not None
        for number, (x, y) in enumerate(rows):
            while worker.rank == 0 and number and exchange.included < 2 * number + 2:  # the other's next round comes
                exchange.idle()
            with_samples(worker, len(x))
            worker.step(F.cross_entropy(worker.model(x), y))

    models = train(Sync(), momentum, data, waiting)
    np.testing.assert_allclose(flat(models[0]), alone(momentum, steps_of(data)), rtol=2e-4, atol=2e-6)


def test_clipping_is_of_the_mean_gradient() -> None:
    data = batches(SIZES)

    def clipping(worker: TorchWorker, rows: list[Batch]) -> None:
        for x, y in rows:
            with_samples(worker, len(x))
            worker.step(F.cross_entropy(worker.model(x), y), clip_norm=0.05)

    models = train(Sync(), momentum, data, clipping)
    np.testing.assert_allclose(flat(models[0]), alone(momentum, steps_of(data), clip=0.05), rtol=2e-4, atol=2e-6)


def test_a_loop_of_its_own_clips_the_mean_gradient_by_asking_the_worker() -> None:
    data = batches(SIZES)

    def clipping(worker: TorchWorker, rows: list[Batch]) -> None:
        for x, y in rows:
            with_samples(worker, len(x))
            worker.optimizer.zero_grad()
            worker.backward(F.cross_entropy(worker.model(x), y))
            worker.clip(0.05)
            worker.optimizer.step()
            worker.exchange()

    models = train(Sync(), momentum, data, clipping)
    np.testing.assert_allclose(flat(models[0]), alone(momentum, steps_of(data), clip=0.05), rtol=2e-4, atol=2e-6)


def test_learning_rates_that_follow_the_own_steps_do_not_drive_replicas_apart() -> None:
    def scheduled(worker: TorchWorker, rows: list[Batch]) -> None:
        schedule = torch.optim.lr_scheduler.ExponentialLR(worker.optimizer, 0.5)
        for x, y in rows:
            before = worker.optimizer.param_groups[0]["lr"]
            with_samples(worker, len(x))
            worker.step(F.cross_entropy(worker.model(x), y))
            assert worker.optimizer.param_groups[0]["lr"] == before, "the user's own rate is back after the step"
            schedule.step()

    train(Sync(), adamw, batches([[4, 4], [4, 4, 4, 4, 4, 4]]), scheduled)  # it compares the replicas


def test_no_number_that_follows_the_own_steps_drives_replicas_apart() -> None:
    def cycling(worker: TorchWorker, rows: list[Batch]) -> None:
        schedule = torch.optim.lr_scheduler.OneCycleLR(worker.optimizer, max_lr=0.1, total_steps=8)
        for x, y in rows:
            before = dict(worker.optimizer.param_groups[0])
            with_samples(worker, len(x))
            worker.step(F.cross_entropy(worker.model(x), y))
            assert worker.optimizer.param_groups[0] == before, "the script has its own numbers back after the step"
            schedule.step()

    for optimizer in (momentum, adamw):
        train(Sync(), optimizer, batches([[4, 4], [4, 4, 4, 4, 4, 4]]), cycling)  # it compares the replicas


def test_a_group_whose_rate_is_zero_stays_and_the_others_have_their_own() -> None:
    def grouped(parameters: Any) -> torch.optim.Optimizer:
        first, *others = parameters
        return torch.optim.SGD([{"params": [first], "lr": 0.0}, {"params": others, "momentum": 0.5}], lr=0.1)

    data = batches(SIZES)
    models = train(Sync(), grouped, data, stepping)
    np.testing.assert_allclose(flat(models[0]), alone(grouped, steps_of(data)), rtol=2e-4, atol=2e-6)
    assert torch.equal(models[0].first.weight, Net().first.weight)


@pytest.mark.parametrize("method", [Sync(), Sync(bucket_mib=TINY), Sync(schedule="tree")])
def test_optimizers_that_are_stepped_in_turn_move_alike_everywhere(method: Sync) -> None:
    """Also where workers are at different optimizers in the same turn: one had nothing to train on for a while."""

    def turns(worker: TorchWorker, rows: list[Batch]) -> None:
        members = members_of(worker.optimizer)
        for number, (x, y) in enumerate(rows):
            with_samples(worker, len(x))
            worker.optimizer.zero_grad()
            loss = F.cross_entropy(worker.model(x), y)
            loss.backward()
            kept = [
                parameter.grad.clone() for parameter in members[1].param_groups[0]["params"] if parameter.grad is not None
            ]
            at = (number + worker.rank) % 3 == 0
            members[at].step()
            if not at:
                held = [each.grad for each in members[1].param_groups[0]["params"] if each.grad is not None]
                assert all(torch.equal(one, other) for one, other in zip(held, kept, strict=True)), (
                    "not its own to change"
                )
            worker.exchange(loss, samples=len(x))

    train(method, both, batches(SIZES), turns)


def test_two_optimizers_in_the_same_turn_are_each_the_mean_of_their_own_samples() -> None:
    data = batches([[4], [3]])

    def one_each(worker: TorchWorker, rows: list[Batch]) -> None:
        (x, y), member = rows[0], members_of(worker.optimizer)[worker.rank]
        with_samples(worker, len(x))
        F.cross_entropy(worker.model(x), y).backward()
        member.step()
        worker.exchange(samples=len(x))

    found = train(Sync(), both, data, one_each)[0]
    model = Net()
    for number, row in enumerate(data):
        lone = Net()
        members = members_of(both(lone.parameters()))
        F.cross_entropy(lone(row[0][0]), row[0][1]).backward()
        members[number].step()
        for mine, theirs in zip(model.parameters(), lone.parameters(), strict=True):
            if any(theirs is each for each in members[number].param_groups[0]["params"]):
                mine.data = theirs.data
    np.testing.assert_allclose(flat(found), flat(model), rtol=2e-5, atol=1e-6)


def test_gradients_that_change_after_they_were_sent_are_refused() -> None:
    def tampering(worker: TorchWorker, rows: list[Batch]) -> None:
        for x, y in rows:
            worker.backward(F.cross_entropy(worker.model(x), y))
            nn.utils.clip_grad_norm_(worker.model.parameters(), 0.01)
            worker.optimizer.step()

    with pytest.raises(Misuse, match=r"worker\.step"):
        train(Sync(bucket_mib=TINY), momentum, batches([[4, 4]]), tampering)


def test_a_loop_without_overlap_may_change_gradients() -> None:
    data = batches([[4, 4, 4], [4, 4, 4]])

    def halving(worker: TorchWorker, rows: list[Batch]) -> None:
        for x, y in rows:
            worker.optimizer.zero_grad()
            F.cross_entropy(worker.model(x), y).backward()
            for parameter in worker.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(0.5)
            worker.optimizer.step()
            worker.exchange()

    models = train(Sync(bucket_mib=TINY), lambda p: torch.optim.SGD(p, lr=0.2), data, halving)
    expected = alone(lambda p: torch.optim.SGD(p, lr=0.1), steps_of(data))
    np.testing.assert_allclose(flat(models[0]), expected, rtol=2e-4, atol=2e-6)


def test_gradients_leave_while_backward_is_at_work() -> None:
    """The last layer's bucket is launched before the first layer has its gradient."""
    seen: list[tuple[int, bool]] = []

    def watched(worker: TorchWorker, rows: list[Batch]) -> None:
        exchange: Any = worker._session.exchange  # type: ignore[union-attr]
        launch = exchange._launch

        def watch(bucket: int) -> None:
            seen.append((bucket, worker.model.first.weight.grad is None))  # type: ignore[union-attr]
            launch(bucket)

        exchange._buckets._full = watch
        stepping(worker, rows)

    train(Sync(bucket_mib=TINY), momentum, batches([[5]]), watched)
    assert [early for _, early in seen][:2] == [True, True]
    assert not seen[-1][1]


def test_a_gradient_that_comes_in_parts_is_refused() -> None:
    """As under reentrant checkpointing: the first part was sent already."""
    model = Net()
    watch = GradientBuckets(list(model.parameters()), [(0, 8)], lambda bucket: None)
    watch.arm()
    x = torch.randn(1, 6)
    model.never(torch.randn(1, 2)).sum().backward()
    model(x).sum().backward()
    with pytest.raises(Misuse, match="bucket_mib=0"):
        model(x).sum().backward()


def test_backup_workers_in_threads() -> None:
    data = batches([[4] * 12, [4] * 3, [4] * 9])
    train(Sync(backup=1), adamw, data, stepping)


# ------------------------------------------------------------------------------------------------------- codecs


@pytest.mark.parametrize("loop", [stepping, own_loop])
def test_a_codec_that_leaves_nothing_out_is_one_large_batch(loop: Loop) -> None:
    data = batches(SIZES)
    models = train(Sync(), momentum, data, loop, codec="topk:density=1")
    np.testing.assert_allclose(flat(models[0]), flat(train(Sync(), momentum, data, loop)[0]), rtol=2e-4, atol=2e-6)


def test_compressed_gradients_still_train_and_leave_replicas_equal() -> None:
    data = batches([[16] * 30, [16] * 20], seed=3)
    for row in data:
        row[:] = [(x, (x[:, 0] > 0).long()) for x, _ in row]
    models = train(Sync(), momentum, data, stepping, codec="topk:density=0.2")
    x, y = data[0][0]
    with torch.no_grad():
        assert F.cross_entropy(models[0](x), y) < 0.5 * F.cross_entropy(Net()(x), y)


def test_a_codec_that_does_not_pay_is_told_of_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    data = batches([[4, 4]] * 4)
    with caplog.at_level("WARNING", logger="taut"):
        coded = train(Sync(), momentum, data, stepping, codec="topk:density=0.9")
    assert "codec topk does not pay" in caplog.text and "which sends float32" in caplog.text
    assert flat(coded[0]).tobytes() == flat(train(Sync(), momentum, data, stepping)[0]).tobytes()


def test_a_codec_of_halves_makes_the_ring_send_halves(caplog: pytest.LogCaptureFixture) -> None:
    data = batches([[4, 4]] * 4)
    with caplog.at_level("WARNING", logger="taut"):
        coded = train(Sync(), momentum, data, stepping, codec="fp16")
    assert "codec fp16 does not pay: 16 bits per element times 4 workers" in caplog.text and "sends fp16" in caplog.text
    halved = train(Sync(wire="fp16"), momentum, data, stepping)
    assert len({flat(each).tobytes() for each in [*coded, *halved]}) == 1


def test_a_gradient_that_is_not_finite_is_named_and_not_sent() -> None:
    def spoiling(worker: TorchWorker, rows: list[Batch]) -> None:
        for x, y in rows:
            worker.optimizer.zero_grad()
            F.cross_entropy(worker.model(x), y).backward()
            worker.model.second.weight.grad[0, 0] = float("nan")  # type: ignore[union-attr, index]
            with pytest.raises(NonFiniteUpdate, match=r"second\.weight"):
                worker.optimizer.step()

    models = train(Sync(), momentum, batches([[5]]), spoiling, codec="topk:density=0.5")
    assert flat(models[0]).tobytes() == flat(Net()).tobytes()


def test_a_rendezvous_that_is_no_text_is_counted_against_its_sender() -> None:
    group: Any = TorchDistributedGroup.__new__(TorchDistributedGroup)
    group._comm = SimpleNamespace(rejections=Rejections())
    group.deliver(Heard(0, Note(RENDEZVOUS, 4000), b"\xff\xfe"))
    assert group._store_at is None and group._comm.rejections.counts[0] == 1
    group.deliver(Heard(0, Note(RENDEZVOUS, 4000), b"10.0.0.7"))
    assert group._store_at == ("10.0.0.7", 4000)


def test_two_workers_on_one_gpu_are_no_group_of_nccl() -> None:
    """The third worker sees that the first two have one card, and so do they; one whose torch cannot tell is let in."""
    for cards, told in ((("a", "a", "b"), "workers 4 and 5 on the same GPU"), (("a", "b", "c"), ""), (("", "", "a"), "")):
        store = torch.distributed.HashStore()
        for index, card in enumerate(cards):
            store.set(f"card-{index}", card)
        found = ""
        try:
            check_cards(store, 2, (4, 5, 7), cards[2])
        except Misuse as error:
            found = str(error)
        assert told in found and bool(told) == bool(found)


def test_nccl_needs_a_torch_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    group: Any = TorchDistributedGroup.__new__(TorchDistributedGroup)
    group._method = SimpleNamespace(backend="nccl")
    for device, told in (("cuda:0", "built without NCCL"), ("cpu", "with a model on cpu")):
        group._params = SimpleNamespace(tensor=SimpleNamespace(device=torch.device(device)))
        with pytest.raises(Misuse, match=told):
            group._new_buffer(3)
