"""A two-layer network in NumPy, with its own backward pass, trained by any number of workers.

    python examples/mlp_numpy.py                                    alone
    taut run --workers 4 examples/mlp_numpy.py                      four processes, each at its own pace
    taut run --workers 4 --strategy sync examples/mlp_numpy.py      in lock-step, on the mean gradient

Four lines are taut's; any framework that can change an array in place fits in the same way.
"""

import numpy as np

import taut

HIDDEN, EPOCHS = 32, 20


def make_data(samples, seed):
    """Two spirals, one in the other."""
    rng = np.random.default_rng(seed)
    turn = rng.uniform(0.5, 3.0, samples) * np.pi
    label = rng.integers(0, 2, samples)
    angle = turn + np.pi * label
    x = np.stack([np.cos(angle), np.sin(angle)], 1) * turn[:, None] / 4 + rng.normal(0, 0.08, (samples, 2))
    return x.astype(np.float32), label.astype(np.float32)


def forward(x):
    hidden = np.tanh(x @ first["weight"] + first["bias"])
    return hidden, 1 / (1 + np.exp(-(hidden @ second["weight"] + second["bias"])))


def backward(x, y, gradient):
    """Write the gradient of the mean cross-entropy into ``gradient``; return the loss."""
    hidden, p = forward(x)
    off = (p - y) / len(y)
    inner = np.outer(off, second["weight"]) * (1 - hidden**2)
    gradient[:] = np.concatenate([(x.T @ inner).ravel(), inner.sum(0), hidden.T @ off, [off.sum()]])
    return -np.mean(y * np.log(p + 1e-7) + (1 - y) * np.log(1 - p + 1e-7))


def momentum(w, gradient, lr):
    velocity[:] = 0.9 * velocity + gradient
    w -= lr * velocity


parts = {"first.weight": (2, HIDDEN), "first.bias": (HIDDEN,), "second.weight": (HIDDEN,), "second.bias": (1,)}
size = sum(np.prod(shape) for shape in parts.values())
w = np.random.default_rng(0).normal(0, 0.5, size).astype(np.float32)
gradient, velocity = np.zeros_like(w), np.zeros_like(w)
train, test = make_data(4000, seed=1), make_data(1000, seed=2)

with taut.join_vector(w, momentum, lr=0.1, state={"velocity": velocity}, parts=parts) as worker:
    first = {"weight": worker.parts["first.weight"], "bias": worker.parts["first.bias"]}
    second = {"weight": worker.parts["second.weight"], "bias": worker.parts["second.bias"]}
    for x, y in worker.batches(train, batch_size=32, epochs=EPOCHS):
        loss = backward(x, y, gradient)
        worker.step(gradient, loss)

worker.print(f"accuracy {np.mean((forward(test[0])[1] > 0.5) == test[1]):.3f}")
