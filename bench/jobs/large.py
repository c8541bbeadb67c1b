"""A model of 25 million parameters and a loop that watches its own memory: as a worker of a run, or plain.

Each process writes ``OUT/RANK.json``: how far its private memory (anonymous pages) has grown since before the model was
made, as the median and the maximum over the second half of the steps.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from pathlib import Path

import torch
import torch._dynamo  # what a fork of the warm process has already is not part of the growth: an optimizer imports this,
from torch import nn

import taut
import taut.codecs.kernels.cpu.kernels
import taut.worker.session  # and a worker these

WIDTH, LAYERS, BATCH = 1250, 16, 4  # many layers: what backward holds for a moment stays small


def anonymous_nbytes() -> int:
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, "needs Linux"
    return 1024 * int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=40, help="of each worker, about")
    parser.add_argument("--plain", action="store_true", help="without taut")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--peers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    before = anonymous_nbytes()
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.Tanh()) for _ in range(LAYERS)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x = torch.randn(BATCH * args.steps * args.peers, WIDTH)
    grown: list[int] = []

    def step(inputs: torch.Tensor) -> float:
        """Gradients stay allocated, so that what is measured does not depend on what the allocator gives back."""
        loss = (model(inputs) - inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss.item()

    if args.plain:
        rank = args.rank
        for inputs in x[: BATCH * args.steps].split(BATCH):
            step(inputs)
            grown.append(anonymous_nbytes() - before)
    else:
        with taut.join(model, optimizer) as worker:
            for inputs in worker.batches(x, batch_size=BATCH, epochs=1):
                worker.exchange(step(inputs))
                grown.append(anonymous_nbytes() - before)
            rank = worker.rank
    half = grown[len(grown) // 2 :]
    parameters = sum(p.numel() for p in model.parameters())
    record = {"parameters": parameters, "steps": len(grown), "median": statistics.median(half), "most": max(half)}
    (args.out / f"{rank}.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main()
