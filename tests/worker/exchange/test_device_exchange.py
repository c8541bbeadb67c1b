"""Every strategy with a model on a device: the flat vector is a torch tensor there, and methods see copies, or payloads.

The device is the CPU (``on_cpu`` says that it is not), so that this runs everywhere.
"""

from __future__ import annotations

import pytest
import test_optimizers_under_strategies as under_strategies
import torch
from test_gradient_rounds import Net, SyncSession, batches, flat, momentum
from test_optimizers_under_strategies import OPTIMIZERS, SHORTER, accuracy, network
from worker_threads import in_threads

from taut.strategies import REGISTRY
from taut.strategies.allreduce.sync import Sync
from taut.strategies.delivery.channels import Channels
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.vector_views import DeviceGradientsCodec, FlatParamsCodec, Weights
from taut.worker.torch_worker import TorchWorker


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlatParams, "on_cpu", property(lambda _: False))


@pytest.mark.parametrize("strategy", sorted(set(REGISTRY) - {"relay"}))
def test_it_learns(strategy: str, device: None) -> None:
    models, _ = under_strategies.run(SHORTER.get(strategy, strategy), OPTIMIZERS["momentum"])
    assert min(accuracy(model) for model in models) > accuracy(network()) + 0.15


def test_weights_are_copied_only_for_rounds(device: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 steps, ``averaging:every=10`` looks at the weights in 4, and at the end."""
    asked, copies = Weights.x.fget, list[bool]()  # type: ignore[attr-defined]

    def counted(weights: Weights) -> object:
        copies.append(weights._behind)
        return asked(weights)

    monkeypatch.setattr(Weights, "x", property(counted))
    under_strategies.run("averaging:every=10", OPTIMIZERS["sgd"])
    assert 2 * 4 <= sum(copies) <= 2 * 8


@pytest.mark.parametrize("codec", ["int8", "topk:density=0.2", "sign:vote=yes", "dgc:density=0.2", "fp16"])
@pytest.mark.parametrize("every", [1, 2])
def test_compressed_gradients_give_the_same_weights_as_in_host_memory(
    codec: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = batches([[4, 5, 3, 4, 6, 4], [2, 6, 7, 4, 4, 2]])
    found = [trained(codec, every, data)]
    monkeypatch.setattr(FlatParams, "on_cpu", property(lambda _: False))
    found.append(trained(codec, every, data, DeviceGradientsCodec))
    assert found[0] == found[1]


def trained(codec: str, every: int, data: list, kind: type[FlatParamsCodec] = FlatParamsCodec) -> bytes:  # type: ignore[type-arg]
    models = [Net() for _ in data]

    def work(rank, node):  # type: ignore[no-untyped-def]
        session = SyncSession(node, FlatParams(models[rank]), Sync(every=every), codec)
        exchange = session.exchange
        exchange.local.coder = kind(exchange.replica.codec, session.params, session.watch, node.rank, node.workers)
        worker = TorchWorker(models[rank], momentum(models[rank].parameters()), session, seed=0)  # type: ignore[arg-type]
        for x, y in data[rank]:
            worker.step(torch.nn.functional.cross_entropy(models[rank](x), y))
        return worker.close

    in_threads([Channels for _ in data], work)
    assert len({flat(model).tobytes() for model in models}) == 1, "replicas differ"
    return flat(models[0]).tobytes()
