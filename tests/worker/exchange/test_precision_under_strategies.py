"""Every strategy in half precision: bfloat16 weights, float16 weights with a scaler, and autocast over float32 weights.

Two workers in threads over the in-memory transport. With a scaler, the gradients of worker 1 overflow in one step.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from test_optimizers_under_strategies import SHORTER, PhasedSeat, accuracy, network
from torch import nn
from torch.nn import functional as F
from worker_threads import in_threads

from taut.strategies import REGISTRY
from taut.strategies.compatibility import combine
from taut.worker.comm.comm_thread import CommThread
from taut.worker.model.flat_params import FlatParams
from taut.worker.phases import Phases
from taut.worker.torch_worker import TorchWorker

STRATEGIES = sorted(set(REGISTRY) - {"relay"})
STEPS, OVERFLOW = 30, 7
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


class Net(nn.Module):
    """Takes and gives float32, whatever it computes in."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = network().to(dtype)
        self.layers[2].bias.data = self.layers[2].bias.data.float()  # one tensor of another precision

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, act, last = self.layers
        hidden = act(first(x.to(first.weight.dtype)))
        return F.linear(hidden, last.weight).float() + last.bias


class Run:
    """Two workers that train ``STEPS`` steps. ``half``: what autocast computes in, if it does."""

    def __init__(self, strategy: str, dtype: torch.dtype, scale: float, half: torch.dtype | None = None) -> None:
        chosen = combine(strategy, workers=2)
        settings = {"strategy": strategy, "topology": chosen.topology, "codec": chosen.codec}
        self.models = [Net(dtype) for _ in range(2)]
        self.optimizers = [torch.optim.AdamW(model.parameters(), lr=0.02) for model in self.models]
        self.scalers = [torch.amp.GradScaler("cpu", init_scale=scale) if scale else None for _ in range(2)]
        self.phases = [Phases(settings, FlatParams(model), None) for model in self.models]
        self.half = half
        in_threads([phase.protocol for phase in self.phases], self._work)
        self.exact = all(phase.exchange.exact for phase in self.phases)
        for phase in self.phases:
            phase.replica.retire()

    def _work(self, rank: int, node: CommThread) -> Any:
        model, seat = self.models[rank], PhasedSeat(node, self.phases[rank])
        worker = TorchWorker(model, self.optimizers[rank], seat, seed=0)  # type: ignore[arg-type]
        made = torch.Generator().manual_seed(rank)
        for step in range(STEPS):
            x = torch.randn(32, 8, generator=made)
            with torch.autocast("cpu", dtype=self.half) if self.half else nullcontext():
                loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
            overflows = rank == 1 and step == OVERFLOW and self.scalers[rank] is not None
            worker.step(loss * 1e37 if overflows else loss, scaler=self.scalers[rank])
        return worker.close

    def check(self, dtype: torch.dtype) -> None:
        for model, optimizer, phase in zip(self.models, self.optimizers, self.phases, strict=True):
            assert [p.dtype for p in model.parameters()] == [dtype] * 3 + [FP32]
            assert torch.isfinite(phase.params.tensor).all()
            for parameter, master in phase.params.views(phase.params.tensor):
                assert torch.equal(parameter, master.to(parameter.dtype))
            for state in optimizer.state.values():
                assert state["exp_avg"].dtype == FP32 and torch.isfinite(state["exp_avg"]).all()
        if self.exact:
            assert torch.equal(self.phases[0].params.tensor, self.phases[1].params.tensor)
        assert min(accuracy(model) for model in self.models) > accuracy(network()) + 0.15


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bfloat16_weights_learn(strategy: str) -> None:
    Run(SHORTER.get(strategy, strategy), BF16, scale=0.0).check(BF16)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_float16_weights_learn_with_a_scaler_and_an_overflow(strategy: str) -> None:
    run = Run(SHORTER.get(strategy, strategy), FP16, scale=1024.0)
    run.check(FP16)
    assert [scaler and scaler.get_scale() for scaler in run.scalers] == [1024.0, 512.0], "each worker's own"


@pytest.mark.long
@pytest.mark.parametrize("half", [BF16, FP16])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_float32_weights_learn_under_autocast_with_a_scaler(strategy: str, half: torch.dtype) -> None:
    run = Run(SHORTER.get(strategy, strategy), FP32, 1024.0, half)
    run.check(FP32)
    assert [scaler and scaler.get_scale() for scaler in run.scalers] == [1024.0, 512.0]
