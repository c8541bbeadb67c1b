"""A linear model of JAX, trained in one of several ways. What each worker ends with goes to the file ``--told``."""

import argparse
from pathlib import Path

import jax
import numpy as np
import optax

import taut.jax

parser = argparse.ArgumentParser()
parser.add_argument("--how", default="step", choices=["step", "exchange"])
parser.add_argument("--told", required=True)
parser.add_argument("--epochs", type=int, default=8)
args = parser.parse_args()

X = np.random.default_rng(0).normal(size=(160, 4)).astype(np.float32)
Y = X @ np.float32([[1.0], [2.0], [-1.0], [0.5]]) + 3.0


@jax.jit
def loss_and_gradient(params, x, y):
    def loss(params):
        return jax.numpy.square(x @ params["weight"] + params["bias"] - y).mean()

    return jax.value_and_grad(loss)(params)


@jax.jit
def own_step(params, x, y):
    loss, gradient = loss_and_gradient(params, x, y)
    return jax.tree.map(lambda each, down: each - 0.1 * down, params, gradient), loss


def hex_of(vector):
    return np.asarray(vector).tobytes().hex()


params = {"weight": np.zeros((4, 1), np.float32), "bias": np.zeros(1, np.float32)}
optimizer = None if args.how == "exchange" else optax.sgd(0.05, momentum=0.5)
with taut.jax.join(params, optimizer) as worker:
    for x, y in worker.batches((X, Y), batch_size=8, epochs=args.epochs):
        if args.how == "exchange":
            params, loss = own_step(worker.params, x, y)
            params = worker.exchange(params, loss)
        else:
            loss, gradient = loss_and_gradient(worker.params, x, y)
            worker.step(gradient, loss)
state = worker.optimizer.state_dict()["state"]
moments = [array for part in state.values() for name, array in sorted(part.items()) if name.startswith("optax.")]
with Path(args.told).open("a") as file:
    file.write(f"{worker.rank} {worker.steps} {hex_of(worker.vector)} {''.join(map(hex_of, moments))}\n")
