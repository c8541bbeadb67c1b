"""Train the linear model for some epochs as a worker."""

import argparse
from pathlib import Path

from linear_keras import X, Y, linear, weights

import taut.keras

parser = argparse.ArgumentParser()
parser.add_argument("--told", required=True)
args = parser.parse_args()

model = linear(metrics=["mae"])
with taut.keras.join(model) as worker:
    model.fit(taut.keras.Dealt(worker, (X, Y), 8), epochs=8, verbose=0, validation_data=(X, Y))
moments = [
    value for each in model.optimizer.variables if each.name != "iteration" for value in each.numpy().ravel().tolist()
]
with Path(args.told).open("a") as file:
    told = [worker.rank, worker.steps, worker.samples, worker.loss]
    file.write(" ".join(map(repr, [*told, *weights(model), *moments])) + "\n")
