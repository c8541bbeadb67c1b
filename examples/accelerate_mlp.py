"""A loop of accelerate on two spirals, trained by any number of workers.

    python examples/accelerate_mlp.py                                    alone
    taut run --workers 4 examples/accelerate_mlp.py                      four processes, each at its own pace
    taut run --workers 4 --strategy sync examples/accelerate_mlp.py      in lock-step, on the mean gradient

Start it with `taut run` and not with `accelerate launch`: the Accelerator then sees one process, and places it. Needs
accelerate. The plain script beside this one: docs/frameworks.md.
"""

import math

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import taut


def spirals(samples, seed):
    """Two spirals, one in the other."""
    generator = torch.Generator().manual_seed(seed)
    turn = torch.empty(samples).uniform_(0.5 * math.pi, 3 * math.pi, generator=generator)
    label = torch.randint(2, (samples,), generator=generator)
    angle = turn + math.pi * label
    x = torch.stack([angle.cos(), angle.sin()], 1) * turn[:, None] / 4
    return x + 0.08 * torch.randn(x.shape, generator=generator), label


def accuracy(model):
    x, y = (tensor.to(accelerator.device) for tensor in spirals(1000, seed=2))
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


torch.manual_seed(0)
accelerator = Accelerator(gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loader = DataLoader(TensorDataset(*spirals(4000, seed=1)), batch_size=16, shuffle=True)
model, optimizer = accelerator.prepare(model, optimizer)
place = accelerator.device

with taut.join(model, optimizer, validate=accuracy) as worker:
    for inputs, labels in worker.batches(loader, epochs=8):
        with accelerator.accumulate(model):
            with accelerator.autocast():
                loss = functional.cross_entropy(model(inputs.to(place)), labels.to(place))
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            worker.exchange(loss)

worker.print(f"accuracy {accuracy(model):.3f}")
