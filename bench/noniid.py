"""Do gossip methods hold when every worker sees different data? 16 workers, MNIST, label splits by Dirichlet draws.

The smaller alpha, the fewer digits a worker ever sees: at 1 a mixture, at 0.1 two or three, at 0.01 mostly one. Published
order (CIFAR-10, VGG-11): D-PSGD on a ring falls, quasi-global momentum helps, SGP on the exponential graph and RelaySGD
hold. Here the very method objects of the runtime train a small perceptron, in one process (``MethodWorld``), each at the
best of a few learning rates, as there. The rate stays constant: were it lowered at the end, mixing would bring the models
together again, and hide how far apart they train. What counts is the mean of the workers' own accuracies on the test set.

    python bench/noniid.py [--data ../shared/data] [--seeds 2] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from report import Row, arguments, report, row
from taut.strategies import parse
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

SHARED = Path(__file__).resolve().parents[2] / "shared"
Slope = Callable[[np.ndarray, int], np.ndarray]  # the gradient at x of a worker's next batch
WORKERS = 16
ALPHAS = (1.0, 0.1, 0.01)
BATCH = 32
CLASSES = 10


@dataclass(frozen=True)
class Contestant:
    """A method, where it runs, and the learning rates to choose from."""

    label: str
    strategy: str
    topology: str
    rates: tuple[float, ...]


SYNC = Contestant("all-reduce", "", "", (0.8, 1.6))
DPSGD = Contestant("dpsgd, ring", "dpsgd", "ring", (0.8, 1.6))
QUASI_GLOBAL = Contestant("dpsgd + quasi-global momentum, ring", "dpsgd:momentum=quasi-global", "ring", (0.4, 0.8))
TRACKING = Contestant("dpsgd + gradient tracking, ring", "dpsgd:tracking=true", "ring", (0.4, 0.8))
PUSH = Contestant("sgp, exponential", "sgp", "exponential", (0.8, 1.6))
RELAY = Contestant("relaysgd, chain of the ring", "relaysgd", "ring", (2.4, 1.6))
CONTESTANTS = (SYNC, DPSGD, QUASI_GLOBAL, TRACKING, PUSH, RELAY)


@dataclass(frozen=True)
class Data:
    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def mnist(folder: Path) -> Data:
    def read(name: str, header: int) -> np.ndarray:
        return np.frombuffer(gzip.decompress((folder / name).read_bytes())[header:], np.uint8)

    x, y = read("train-images-idx3-ubyte.gz", 16), read("train-labels-idx1-ubyte.gz", 8)
    test_x, test_y = read("t10k-images-idx3-ubyte.gz", 16), read("t10k-labels-idx1-ubyte.gz", 8)
    return Data(halved(x), y, halved(test_x), test_y)


def halved(pixels: np.ndarray) -> np.ndarray:
    """14 x 14 means of 2 x 2 pixels, centred: a quarter of the work, and nearly the same accuracy."""
    means = pixels.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4), dtype=np.float32).reshape(-1, 196)
    return means / np.float32(255) - np.float32(0.13)


def digits() -> Data:
    """scikit-learn's small digits, where MNIST is not at hand."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = (x[order] / 16 - 0.3).astype(np.float32), y[order]
    return Data(x[360:], y[360:], x[:360], y[:360])


def split(y: np.ndarray, alpha: float, seed: int) -> list[np.ndarray]:
    """Equally many samples for everybody; whose classes they are is drawn from a Dirichlet distribution per worker."""
    draw = np.random.default_rng(seed)
    pools = [list(draw.permutation(np.flatnonzero(y == digit))) for digit in range(CLASSES)]
    shares: list[np.ndarray] = []
    for _ in range(WORKERS):
        wish = draw.dirichlet(np.full(CLASSES, alpha)) + 1e-12
        mine: list[int] = []
        for _ in range(len(y) // WORKERS):
            left = wish * [bool(pool) for pool in pools]
            mine.append(pools[draw.choice(CLASSES, p=left / left.sum())].pop())
        shares.append(np.array(mine))
    return shares


class Perceptron:
    """Inputs, a hidden layer with ReLU, classes: weights in one vector."""

    def __init__(self, inputs: int, hidden: int) -> None:
        self.shapes = ((inputs, hidden), (hidden,), (hidden, CLASSES), (CLASSES,))
        self.sizes = [int(np.prod(shape)) for shape in self.shapes]

    def parts(self, vector: np.ndarray) -> list[np.ndarray]:
        bounds = np.cumsum([0, *self.sizes])
        return [vector[a:b].reshape(s) for a, b, s in zip(bounds, bounds[1:], self.shapes, strict=False)]

    def start(self, seed: int) -> np.ndarray:
        draw = np.random.default_rng(seed)
        vector = np.zeros(sum(self.sizes), np.float32)
        for part in self.parts(vector)[::2]:
            part[:] = draw.normal(size=part.shape) * np.sqrt(2.0 / len(part))
        return vector

    def gradient(self, vector: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Of the mean cross-entropy."""
        w1, b1, w2, b2 = self.parts(vector)
        hidden = np.maximum(x @ w1 + b1, 0)
        scores = hidden @ w2 + b2
        scores = np.exp(scores - scores.max(1, keepdims=True))
        wrong = scores / scores.sum(1, keepdims=True)
        wrong[np.arange(len(y)), y] -= 1
        wrong /= len(y)
        back = (wrong @ w2.T) * (hidden > 0)
        found = np.empty_like(vector)
        g1, c1, g2, c2 = self.parts(found)
        g1[:], c1[:], g2[:], c2[:] = x.T @ back, back.sum(0), hidden.T @ wrong, wrong.sum(0)
        return found

    def accuracy(self, vector: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
        w1, b1, w2, b2 = self.parts(vector)
        return 100.0 * float(((np.maximum(x @ w1 + b1, 0) @ w2 + b2).argmax(1) == y).mean())


def train(contestant: Contestant, data: Data, shares: Sequence[np.ndarray], rate: float, steps: int, seed: int) -> float:
    """The mean accuracy of the workers' models, in percent."""
    net = Perceptron(data.x.shape[1], 64)
    draws = [np.random.default_rng([seed, rank]) for rank in range(WORKERS)]

    def slope(x: np.ndarray, rank: int) -> np.ndarray:
        batch = draws[rank].choice(shares[rank], BATCH)
        return net.gradient(x, data.x[batch], data.y[batch])

    with np.errstate(all="ignore"):  # too high a rate diverges, and scores what it deserves
        models = _gossip(contestant, slope, net.start(seed), rate, steps, seed)
        return statistics.mean(net.accuracy(x, data.test_x, data.test_y) for x in models)


def _gossip(
    contestant: Contestant, slope: Slope, start: np.ndarray, rate: float, steps: int, seed: int
) -> list[np.ndarray]:
    """The workers' models after so many steps."""
    if not contestant.strategy:  # synchronous SGD is one model that goes along the mean of all gradients
        for _ in range(steps):
            start -= np.float32(rate / WORKERS) * sum(slope(start, rank) for rank in range(WORKERS))
        return [start]
    method = parse(contestant.strategy).method()

    def step(actor: Actor) -> int:
        gradient = slope(actor.x, actor.rank)
        if method.shapes_gradient:
            method.shape_gradient(actor.method_state, gradient, rate)
        actor.x -= np.float32(rate) * gradient
        return BATCH

    world = MethodWorld(method, [start] * WORKERS, topology=contestant.topology, seed=seed, step=step, rate=rate)
    world.run(steps)
    return world.vectors()


def compare(data: Data, args: argparse.Namespace) -> list[Row]:
    """A row for each method and alpha, then the published order as bars."""
    alphas, steps, seeds = (1.0, 0.01), 300, 1
    if not args.quick:
        alphas, steps, seeds = ALPHAS, 600, args.seeds
    best: dict[tuple[float, str], float] = {}
    rows: list[Row] = []
    for alpha in alphas:
        splits = [split(data.y, alpha, seed) for seed in range(seeds)]
        for one in CONTESTANTS:
            scores = {}
            for rate in one.rates[:1] if args.quick else one.rates:
                runs = [train(one, data, shares, rate, steps, seed) for seed, shares in enumerate(splits)]
                scores[rate] = statistics.mean(runs)
                print(f"alpha {alpha:g}: {one.label}, rate {rate:g}: {scores[rate]:.2f}", file=sys.stderr, flush=True)
            rate = max(scores, key=lambda each: scores[each])
            best[alpha, one.label] = scores[rate]
            rows.append(row(f"alpha {alpha:g}: {one.label} (rate {rate:g})", scores[rate], "%"))
    return rows + order(best, alphas)


def order(best: dict[tuple[float, str], float], alphas: Sequence[float]) -> list[Row]:
    """The published order at the hardest split, and who falls from the easiest to it."""
    easy, hard = max(alphas), min(alphas)

    def ahead(better: Contestant, worse: Contestant, least: float) -> Row:
        gap = best[hard, better.label] - best[hard, worse.label]
        return row(f"alpha {hard:g}: {better.label} above {worse.label}", gap, "points", at_least=least)

    def fall(one: Contestant) -> float:
        return best[easy, one.label] - best[hard, one.label]

    return [
        ahead(QUASI_GLOBAL, DPSGD, 1.0),
        ahead(RELAY, QUASI_GLOBAL, 0.0),
        ahead(PUSH, QUASI_GLOBAL, 0.0),
        ahead(TRACKING, DPSGD, 1.0),
        row(f"{DPSGD.label}: falls from alpha {easy:g} to {hard:g}", fall(DPSGD), "points", at_least=4.0),
        *(
            row(f"{one.label}: falls so much, as a share of that", fall(one) / max(fall(DPSGD), 1e-9), "", at_most=0.3)
            for one in (PUSH, RELAY)
        ),
    ]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED / "data", help="holds mnist/")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    folder = args.data / "mnist"
    if (folder / "train-images-idx3-ubyte.gz").exists():
        data = mnist(folder)
    elif args.quick:
        print(f"no MNIST in {folder}: scikit-learn's digits instead", file=sys.stderr)
        data = digits()
    else:
        parser.error(f"no MNIST in {folder}: --data must name a folder with mnist/*-ubyte.gz (IDX files)")
    report("noniid", compare(data, args), args)


if __name__ == "__main__":
    main()
