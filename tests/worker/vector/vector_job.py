"""The same training three times: with torch, and with an array that is moved by ``update`` or by the script itself.

Its arithmetic is exact to the last bit in both libraries (a batch is one sample, the rate is a power of two), so that
what differs is the way the weights go. What each worker ends with goes to the file ``--told``.
"""

import argparse

import numpy as np

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--how", default="step", choices=["torch", "step", "exchange", "momentum"])
parser.add_argument("--told", required=True)
parser.add_argument("--epochs", type=int, default=4)
args = parser.parse_args()

X = np.random.default_rng(0).normal(3.0, 1.0, (48, 8)).astype(np.float32)


def say(worker, weights, moved=None):
    with open(args.told, "a") as file:
        beside = "" if moved is None else moved.tobytes().hex()
        file.write(f"{worker.rank} {worker.steps} {weights.tobytes().hex()} {beside}\n")


def with_torch():
    import torch

    model = torch.nn.Linear(3, 2)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=0.125)) as worker:
        for x in worker.batches(torch.from_numpy(X), batch_size=1, epochs=args.epochs):
            off = (model.weight - x[0, :6].view(2, 3)).square().sum() + (model.bias - x[0, 6:]).square().sum()
            worker.step(off / 2)
    say(worker, torch.cat([each.detach().flatten() for each in model.parameters()]).numpy())


def with_an_array():
    w, moved = np.zeros(8, np.float32), np.zeros(8, np.float32)

    def sgd(w, gradient, lr):
        w -= lr * gradient

    def momentum(w, gradient, lr):
        moved[:] = 0.5 * moved + gradient
        w -= lr * moved

    update = {"step": sgd, "momentum": momentum}.get(args.how)
    state = {"moved": moved} if args.how == "momentum" else None
    parts = {"weight": (2, 3), "bias": (2,)}
    with taut.join_vector(w, update, lr=0.125, state=state, parts=parts) as worker:
        for x in worker.batches(X, batch_size=1, epochs=args.epochs):
            assert all(teacher.shape == w.shape for teacher in worker.teachers())
            gradient = w - x[0]
            if update is None:
                w -= 0.125 * gradient
                worker.exchange(float(np.square(gradient).sum()))
            else:
                worker.step(gradient, float(np.square(gradient).sum()))
    say(worker, w, moved if state else None)


with_torch() if args.how == "torch" else with_an_array()
