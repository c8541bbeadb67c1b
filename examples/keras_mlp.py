"""A Keras model on two spirals, trained by model.fit and any number of workers.

    python examples/keras_mlp.py                                    alone
    taut run --workers 4 examples/keras_mlp.py                      four processes, each at its own pace
    taut run --workers 4 --strategy sync examples/keras_mlp.py      in lock-step, on the mean gradient

Needs Keras 3 (pip install 'taut[keras]'). The plain script beside this one: docs/frameworks.md.
"""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
from keras import layers

import taut.keras


def spirals(samples, seed):
    """Two spirals, one in the other."""
    rng = np.random.default_rng(seed)
    turn = rng.uniform(0.5, 3.0, samples) * np.pi
    label = rng.integers(0, 2, samples)
    angle = turn + np.pi * label
    x = np.stack([np.cos(angle), np.sin(angle)], 1) * turn[:, None] / 4 + rng.normal(0, 0.08, (samples, 2))
    return x.astype(np.float32), label


(x, y), test = spirals(4000, seed=1), spirals(1000, seed=2)
keras.utils.set_random_seed(0)
relu = {"activation": "relu"}
model = keras.Sequential([keras.Input((2,)), layers.Dense(64, **relu), layers.Dense(64, **relu), layers.Dense(2)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])

with taut.keras.join(model) as worker:
    model.fit(taut.keras.Dealt(worker, (x, y), batch_size=32), epochs=8, verbose=2)

worker.print(f"accuracy {model.evaluate(*test, verbose=0)[1]:.3f}")
