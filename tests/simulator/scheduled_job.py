"""A script with a schedule of its learning rate, which it names or not, and a line about where that has come to."""

import argparse
from pathlib import Path

import torch
from torch import nn

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--names-it", action="store_true")
parser.add_argument("--optimizer", default="Adam")
parser.add_argument("--odd", help="the optimizer of whoever is started after the first three")
parser.add_argument("--told", type=Path)
given = parser.parse_args()
x = torch.randn(240, 3, generator=torch.Generator().manual_seed(0))
torch.manual_seed(0)
model = nn.Linear(3, 3)
with given.told.open("a+") as told:
    told.seek(0)
    late = told.read().count("started") >= 3
    told.write("started\n")
kind = given.odd if late and given.odd else given.optimizer
optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1.0)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
with taut.join(model, optimizer, also={"schedule": schedule} if given.names_it else None) as worker:
    for (inputs,) in worker.batches((x,), batch_size=4, epochs=2):
        worker.step((model(inputs) - inputs).square().mean())
        schedule.step()
with given.told.open("a") as told:
    told.write(f"{worker.rank} {worker.steps} {schedule.last_epoch}\n")
