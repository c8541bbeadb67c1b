"""A model of a given size and a loop that times every step, as a worker of a run with checkpoints.

Each process writes ``OUT/RANK.json``: how long each step took, from batch to batch, which checkpoint was the last to be
copied when it ended, and whether one was being made meanwhile; and for each checkpoint how long training stopped for it,
by the worker's own account.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import nn

import taut


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="after the first step")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    blocks = [nn.Sequential(nn.Linear(args.width, args.width, bias=False), nn.Tanh()) for _ in range(args.layers)]
    model = nn.Sequential(*blocks).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(32 * args.batch, args.width, device=device)
    steps: list[tuple[float, int, bool]] = []
    stopped_s: dict[int, float] = {}
    with taut.join(model, optimizer) as worker:
        keeper = worker._keeper
        ends_s = None  # from the end of the first step on: kernels may have to be compiled for that one, which takes long
        begun_s, busy = time.monotonic(), False
        for inputs in worker.batches(x, batch_size=args.batch, epochs=1_000_000):
            worker.step((model(inputs) - inputs).square().mean())
            now_s, still = time.monotonic(), keeper is not None and keeper.busy
            if keeper is not None and keeper.taken:
                stopped_s[keeper.taken] = keeper.pause_s
            steps.append((now_s - begun_s, keeper.taken if keeper is not None else 0, busy or still))
            begun_s, busy = now_s, still
            ends_s = now_s + args.seconds if ends_s is None else ends_s
            if now_s > ends_s:
                break
        rank = worker.rank
    record = {
        "steps": steps,
        "stopped_s": list(stopped_s.values()),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    (args.out / f"{rank}.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main()
