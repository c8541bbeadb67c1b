"""A training script for the tests of checkpoints: dropout, batch norm, a scheduler, and data with random noise, so that
whatever is not restored shows. Its loop is over epochs, or one for all of them."""

import argparse
import hashlib
import os
import threading

import torch
from torch import nn
from torch.nn import functional as F

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--samples", type=int, default=1500)
parser.add_argument("--optimizer", default="SGD")
parser.add_argument("--loop", default="epochs", choices=["epochs", "one"])
parser.add_argument("--hidden", type=int, default=24)
parser.add_argument("--loader", action="store_true", help="a data set that is no tensor, with noise of its own")
parser.add_argument("--pause", type=float, default=0.0, help="seconds of a step, so that there is time for a kill")
parser.add_argument("--digest", help="write the hash of the final model here")
args = parser.parse_args()
PAUSE = threading.Event()  # never set

torch.manual_seed(0)
X = torch.randn(args.samples, 20)
Y = (X @ torch.randn(20, 5)).argmax(1)
model = nn.Sequential(
    nn.Linear(20, args.hidden), nn.BatchNorm1d(args.hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(args.hidden, 5)
)
kwargs = {"momentum": 0.9} if args.optimizer == "SGD" else {}
optimizer = getattr(torch.optim, args.optimizer)(model.parameters(), lr=0.05 if kwargs else 0.01, **kwargs)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1 if args.loop == "epochs" else 100, gamma=0.9)


class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return args.samples

    def __getitem__(self, index):
        return X[index] + 0.01 * torch.randn(20), Y[index]


data = Noisy() if args.loader else (X, Y)


def train(batches):
    for x, y in batches:
        worker.step(F.cross_entropy(model(x + 0.01 * torch.randn(x.shape)), y))
        if args.loop == "one":
            scheduler.step()
        if args.pause and not os.path.exists("hurry"):
            PAUSE.wait(args.pause)


with taut.join(model, optimizer, also={"scheduler": scheduler}) as worker:
    print("resumed", worker.resumed, "at step", worker.steps)
    if args.loop == "one":
        train(worker.batches(data, batch_size=20, epochs=args.epochs))
    for _ in range(args.epochs if args.loop == "epochs" else 0):
        train(worker.batches(data, batch_size=20))
        scheduler.step()
held = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
print("steps", worker.steps, "samples", worker.samples, "rate", scheduler.get_last_lr())
if args.digest:
    with open(args.digest, "w") as file:
        file.write(hashlib.blake2b(held).hexdigest())
