"""A script that trains with all that ``taut.join`` and ``worker.step`` take, whole or in an island.

    island_job.py columns|fsdp|split|dtensor [--overflow STEP] [--global-batch]

``split``: FSDP, each process with its part of every batch; ``dtensor``: cut by torch's parallelize_module.

Its last line is JSON: what this process saw.
"""

import argparse
import json

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import taut

parser = argparse.ArgumentParser()
parser.add_argument("cut", choices=("columns", "fsdp", "split", "dtensor"))
parser.add_argument("--overflow", type=int, default=0)
parser.add_argument("--global-batch", action="store_true")
options = parser.parse_args()

generator = torch.Generator().manual_seed(1)
x = torch.randn(1000, 20, generator=generator)
y = (x[:, 0] + x[:, 1] > 0).long()
island = taut.parallel.island()
torch.manual_seed(0)
branch = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8))
if options.cut == "columns":
    model = nn.Sequential(
        taut.parallel.columns(nn.Linear(20, 32), gather=False),
        nn.ReLU(),
        taut.parallel.rows(nn.Linear(32, 16), split=True),
        taut.parallel.paths([branch, nn.Linear(16, 8)]),  # process 0 alone has batch norm
        nn.Linear(16, 2),
    )
else:
    branch = branch if options.cut == "fsdp" else nn.Linear(16, 8)  # batch norm sees this process's samples alone
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 16), branch, nn.Linear(8, 2))
    if options.cut == "dtensor" and island.size > 1:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        parallelize_module(model, island.mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    elif island.size > 1:
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=island.mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)


def accuracy(model: nn.Module) -> float:
    return float((model(x).argmax(1) == y).float().mean())


def parts(tensors) -> list[torch.Tensor]:
    """Return this process's parts, as copies."""
    return [getattr(each, "_local_tensor", each).detach().clone() for each in tensors]


moved, overflowed = 0, False
size = {"global_batch": 50} if options.global_batch else {"batch_size": 40 if options.cut == "split" else 25}
read = 0
with taut.join(model, optimizer, validate=accuracy, recalibrate=lambda: x.split(100)) as worker:
    for inputs, targets in worker.batches((x, y), epochs=2, split=options.cut == "split", **size):
        read += len(targets)
        loss = cross_entropy(model(inputs), targets)
        overflows = 0 < worker.steps == options.overflow and worker.rank == 0
        own = dict(model.named_parameters()).get("3.1.weight") if overflows else None
        hook = None if own is None else own.register_hook(lambda gradient: gradient * float("inf"))
        before = parts(model.parameters())
        worker.step(loss, clip_norm=0.5, scaler=scaler)
        if overflows:
            overflowed, moved = True, sum(map(torch.equal, before, parts(model.parameters()))) - len(before)
        if hook is not None:
            hook.remove()

found = {"score": worker.score, "scale": scaler.get_scale(), "moved": moved, "accuracy": accuracy(model)}
print(json.dumps(found | {"overflowed": overflowed, "steps": worker.steps, "samples": worker.samples, "read": read}))
