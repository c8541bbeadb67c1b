"""A Keras model that learns a linear map, and its data."""

import os

os.environ["KERAS_BACKEND"] = "torch"

from typing import Any

import keras
import numpy as np

X = np.random.default_rng(0).normal(size=(160, 4)).astype(np.float32)
Y = X @ np.float32([[1.0], [2.0], [-1.0], [0.5]]) + 3.0


def linear(optimizer: Any = None, **given: Any) -> Any:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="zeros", name="layer")])
    model.compile(optimizer or keras.optimizers.SGD(0.05, momentum=0.5), "mse", **given)
    return model


def weights(model: Any) -> list[float]:
    kernel, bias = model.get_weights()
    return [*bias.tolist(), *kernel.ravel().tolist()]
