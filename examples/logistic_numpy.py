"""Logistic regression in NumPy: four workers, each with its own data, connected by channels.

    python examples/logistic_numpy.py                       each worker is a thread of this process
    taut run --workers 4 examples/logistic_numpy.py         each has a process of its own

The framework-free level: fill a worker with one iteration, say how a neighbour's update is included, and run.
"""

import itertools

import numpy as np

import taut

rng = np.random.default_rng(0)
truth = rng.normal(size=20).astype(np.float32)


def make_data(samples: int) -> tuple[np.ndarray, np.ndarray]:
    x = rng.normal(size=(samples, 20)).astype(np.float32)
    return x, (x @ truth + rng.normal(scale=0.5, size=samples) > 0).astype(np.float32)


class Logistic(taut.Worker):
    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = x, y
        self.w = np.zeros(20, np.float32)

    def iterate(self) -> np.ndarray:
        pick = np.random.default_rng().integers(len(self.x), size=32)
        x, y = self.x[pick], self.y[pick]
        prediction = 1 / (1 + np.exp(-x @ self.w))
        change = 0.1 * x.T @ (y - prediction) / len(pick)
        self.w += change
        return change

    def include(self, update: np.ndarray, sender: int) -> None:
        self.w += update


topology = taut.Topology()
ranks = [topology.worker(Logistic(*make_data(500))) for _ in range(4)]
for a, b in itertools.combinations(ranks, 2):
    topology.channel(a, b)

taut.run(topology, iterations=1000)

x, y = make_data(2000)
for rank, worker in topology.here():
    print(f"worker {rank}: accuracy {np.mean((x @ worker.w > 0) == y):.3f}")
