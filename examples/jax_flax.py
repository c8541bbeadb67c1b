"""A network of flax on two spirals, trained with JAX and optax by any number of workers.

    python examples/jax_flax.py                                    alone
    taut run --workers 4 examples/jax_flax.py                      four processes, each at its own pace
    taut run --workers 4 --strategy sync examples/jax_flax.py      in lock-step, on the mean gradient

Needs JAX, optax and flax (pip install 'taut[jax]' flax). The plain script beside this one: docs/frameworks.md.
"""

import jax
import numpy as np
import optax
from flax import linen as nn

import taut.jax


def spirals(samples, seed):
    """Two spirals, one in the other."""
    rng = np.random.default_rng(seed)
    turn = rng.uniform(0.5, 3.0, samples) * np.pi
    label = rng.integers(0, 2, samples)
    angle = turn + np.pi * label
    x = np.stack([np.cos(angle), np.sin(angle)], 1) * turn[:, None] / 4 + rng.normal(0, 0.08, (samples, 2))
    return x.astype(np.float32), label


@jax.jit
def loss_and_gradient(params, x, y):
    def loss(params):
        return optax.softmax_cross_entropy_with_integer_labels(model.apply(params, x), y).mean()

    return jax.value_and_grad(loss)(params)


(x, y), test = spirals(4000, seed=1), spirals(1000, seed=2)
model = nn.Sequential([nn.Dense(64), nn.relu, nn.Dense(64), nn.relu, nn.Dense(2)])
params = model.init(jax.random.key(0), x[:1])
optimizer = optax.adam(3e-3)

with taut.jax.join(params, optimizer) as worker:
    for inputs, labels in worker.batches((x, y), batch_size=32, epochs=10):
        loss, gradient = loss_and_gradient(worker.params, inputs, labels)
        worker.step(gradient, loss)
params = worker.params

worker.print(f"accuracy {(model.apply(params, test[0]).argmax(1) == test[1]).mean():.3f}")
