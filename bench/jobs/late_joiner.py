"""Steps of a model of a given size with Adam, and when each of them ended: for ``bench/late_joiner.py``."""

import argparse
import logging
import os
import time
from pathlib import Path

import torch
from torch import nn

import taut

logging.basicConfig(level=logging.INFO)
parser = argparse.ArgumentParser()
parser.add_argument("--parameters", type=int)
parser.add_argument("--gate", type=Path, help="train on until this file exists")
parser.add_argument("--out", type=Path)
given = parser.parse_args()
torch.set_num_threads(1)
side = int(given.parameters**0.5)
model = nn.Linear(side, side, bias=False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
x = torch.randn(64, side)
times = []
with taut.join(model, optimizer) as worker:
    while not given.gate.exists() and not worker.stopping:
        for (inputs,) in worker.batches((x,), batch_size=8):
            worker.step(model(inputs).square().mean())
            times.append(time.time())
            if worker.stopping:
                break
(given.out / f"{os.getpid()}.txt").write_text("\n".join(map(repr, times)))
