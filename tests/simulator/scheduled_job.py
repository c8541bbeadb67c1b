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
parser.add_argument("--groups", action="store_true", help="that one has other groups of parameters")
parser.add_argument("--broken", choices=["load", "give"], help="what it cannot take over, or the others cannot give")
parser.add_argument("--grows", action="store_true", help="a buffer of the others has another size by then")
parser.add_argument("--told", type=Path)
given = parser.parse_args()
x = torch.randn(240, 3, generator=torch.Generator().manual_seed(0))
torch.manual_seed(0)
model = nn.Linear(3, 3)
model.register_buffer("seen", torch.zeros(2))
with given.told.open("a+") as told:
    told.seek(0)
    late = told.read().count("started") >= 3
    told.write("started\n")
kind = given.odd if late and given.odd else given.optimizer
groups = [{"params": [each]} for each in model.parameters()] if late and given.groups else model.parameters()
optimizer = getattr(torch.optim, kind)(groups, lr=1.0)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
also = {"schedule": schedule} if given.names_it else {}


class Broken:
    """Has a state, which the newcomer cannot take over, or the others cannot give when they are asked."""

    asked = 0

    def state_dict(self) -> dict[str, int]:
        self.asked += 1
        if given.broken == "give" and self.asked > 1:  # once when the script joins
            raise OSError("the disk is gone")
        return {"number": 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        raise ArithmeticError(f"cannot take {state}")


if given.broken:
    also["broken"] = Broken()
with taut.join(model, optimizer, also=also or None) as worker:
    for (inputs,) in worker.batches((x,), batch_size=4, epochs=2):
        worker.step((model(inputs) - inputs).square().mean())
        schedule.step()
        if given.grows and model.seen.numel() == 2:
            model.register_buffer("seen", torch.zeros(5))
with given.told.open("a") as told:
    told.write(f"{worker.rank} {worker.steps} {schedule.last_epoch}\n")
