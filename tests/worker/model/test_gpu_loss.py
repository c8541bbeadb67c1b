"""A loss on a GPU is read a step later: no step waits for the device. Skipped where there is no GPU."""

from __future__ import annotations

import pytest
import torch

import taut
from taut.errors import NonFiniteLoss

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),  # torch calls it a prototype
]


def joined() -> tuple[torch.nn.Module, taut.TorchWorker]:
    model = torch.nn.Linear(8, 8).cuda()
    return model, taut.join(model, torch.optim.SGD(model.parameters(), lr=0.01))


def test_a_step_does_not_wait_for_the_device() -> None:
    model, worker = joined()
    x = torch.randn(16, 8, device="cuda")
    with worker:
        worker.step(model(x).square().mean())  # whatever is set up at the first step
        torch.cuda.synchronize()
        try:
            torch.cuda.set_sync_debug_mode("error")
            torch.cuda._sleep(200_000_000)
            behind = torch.cuda.Event()
            behind.record()
            loss = worker.step(model(x).square().mean())
            assert not behind.query(), "the step has waited for what was under way before it"
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert isinstance(loss, torch.Tensor) and not loss.requires_grad
        assert worker.loss == pytest.approx(float(loss))
        assert worker.device.type == "cuda"
        assert worker.statistics().loss == worker.loss


@pytest.mark.parametrize("steps_after", [0, 1])
def test_nan_is_found_at_the_next_step_or_at_the_end(steps_after: int) -> None:
    model, worker = joined()
    x = torch.randn(16, 8, device="cuda")

    def train() -> None:
        with worker:
            for scale in [1.0, float("nan"), *steps_after * [1.0]]:
                worker.step(model(x).square().mean() * scale)

    with pytest.raises(NonFiniteLoss, match=r"at step 1 of worker 0.*a step later"):
        train()
    assert worker.steps == 2
