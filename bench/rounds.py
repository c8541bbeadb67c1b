"""What does a codec cost, and save, under strategies that exchange vectors? Every pair that is claimed.

A small perceptron learns scikit-learn's digits on 6 workers. The very method objects of the runtime train it in virtual
time, in one process (``MethodWorld``). Each strategy trains with ``dense`` and with each codec that it takes, at the same
learning rate, from the same seeds, twice: where all workers draw from samples of all digits (*alike*), and where each has
samples of one or two digits only (*apart*). What counts is the accuracy of the model that comes out (``codistillation``:
the mean of the workers' models) on held-out samples, and the bytes of all messages, first whole vectors and the end
included. *Alike* is easy: the mean of workers that never talked is good, too (the first row). *Apart* shows what mixing
does in so many steps.

The bar of a pair: its accuracy, in the mean of the seeds, at most 1 point below the same strategy with dense *alike*, at
most 3 *apart*. The grid has the bytes of dense / the bytes of the pair; 1 means that the codec does not pay there, and
the ring is of float32. docs/compression.md names the pairs that miss.

    python bench/rounds.py [--seeds 2] [--steps 400] [--only dpsgd sgp] [--jobs 2] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np

from noniid import Data, Perceptron, digits
from report import Grid, Row, arguments, report, row
from taut.codecs import parse as parse_codec
from taut.codecs.vector_codec import VectorCodec
from taut.plugins import CODECS
from taut.strategies import parse
from taut.strategies.api import Method
from taut.strategies.compatibility import takes_codec
from taut.strategies.delivery.channels import ChannelsState
from taut.strategies.gossip.codistillation import Codistillation
from taut.testing.worlds.codec_actor import CoderActor
from taut.testing.worlds.method_actor import Actor, Vector
from taut.testing.worlds.method_world import MethodWorld

LOSS = {"alike": 1.0, "apart": 3.0}  # points
RATE, WORKERS, BATCH, HIDDEN = 0.2, 6, 32, 128
CONTESTANTS = {  # strategy: topology
    "averaging:every=4": "complete",
    "fedavg:steps=4": "complete",
    "diloco:every=4,outer_rate=0.7,outer_momentum=0.5": "complete",
    "dynamic:every=4,threshold=0.05": "complete",
    "admm:every=4,rho=1": "complete",
    "easgd:every=4": "complete",
    "server": "complete",
    "dpsgd": "ring",
    "dpsgd:momentum=quasi-global": "ring",
    "dpsgd:tracking=true": "ring",
    "dpsgd:mixing=uniform": "one-peer",
    "sgp": "exponential",
    "sgp:overlap=1": "exponential",
    "gossipgrad": "complete",
    "adpsgd": "ring",
    "relaysgd": "ring",
    "choco": "ring",
    "codistillation:every=10": "complete",
}
DENSE = "dense"
WRITTEN = {"topk": "topk:density=0.01", "randomk": "randomk:density=0.05", "dgc": "dgc:density=0.01"}
QUICK = (("dpsgd", "easgd:every=4", "averaging:every=4"), ("topk", "sign", "int8"))


def actors(net: Perceptron, codec: str) -> Callable[[int, Vector, ChannelsState], Actor]:
    """Return a maker of workers whose codec knows the shapes of the tensors."""
    if codec == DENSE:
        return Actor
    given = parse_codec(codec)

    def made(rank: int, x: Vector, channels: ChannelsState) -> Actor:
        actor = CoderActor(rank, x, channels, given, WORKERS)
        actor.coder = VectorCodec(given, len(x), net.shapes, seed=rank, workers=WORKERS)
        return actor

    return made


def agreement(net: Perceptron, actor: Actor, x: np.ndarray, method: Codistillation) -> np.ndarray | float:
    """Return the gradient of codistillation's second term: towards the mean of the teachers' predictions."""
    teachers = actor.method_state.teachers
    if not teachers:
        return 0.0
    chances = [scores(net, one.weights, x) for one in teachers.values()]
    # The cross-entropy's gradient with these for labels.
    return method.weight * net.gradient(actor.x, x, np.mean(chances, axis=0))


def scores(net: Perceptron, vector: np.ndarray, x: np.ndarray) -> np.ndarray:
    w1, b1, w2, b2 = net.parts(vector)
    given = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    powers = np.exp(given - given.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


class Soft(Perceptron):
    """Whose labels may be chances."""

    def gradient(self, vector: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if y.ndim == 1:
            return super().gradient(vector, x, y)
        w1, b1, w2, _ = self.parts(vector)
        hidden = np.maximum(x @ w1 + b1, 0)
        wrong = (scores(self, vector, x) - y) / len(y)
        back = (wrong @ w2.T) * (hidden > 0)
        found = np.empty_like(vector)
        g1, c1, g2, c2 = self.parts(found)
        g1[:], c1[:], g2[:], c2[:] = x.T @ back, back.sum(0), hidden.T @ wrong, wrong.sum(0)
        return found


@cache
def data() -> Data:
    return digits()


@dataclass(frozen=True)
class Run:
    strategy: str
    topology: str
    codec: str
    split: str
    steps: int
    seed: int


def trained(run: Run) -> tuple[float, float]:
    """Return the accuracy in percent, and the megabytes that were sent."""
    steps, seed, samples, method = run.steps, run.seed, data(), parse(run.strategy).method()
    net = Soft(samples.x.shape[1], HIDDEN)
    order = np.random.default_rng(seed).permutation(len(samples.y))
    if run.split == "apart":
        order = order[np.argsort(samples.y[order], kind="stable")]
    shares = np.array_split(order, WORKERS)
    draws = [np.random.default_rng([seed, rank]) for rank in range(WORKERS)]

    def step(actor: Actor) -> int:
        batch = draws[actor.rank].choice(shares[actor.rank], BATCH)
        x, rate = samples.x[batch], RATE * (1 - actor.steps / (2 * steps))
        gradient = net.gradient(actor.x, x, samples.y[batch])
        if isinstance(method, Codistillation):
            gradient += agreement(net, actor, x, method)
        if method.shapes_gradient:
            method.shape_gradient(actor.method_state, gradient, rate)
        actor.x -= np.float32(rate) * gradient
        return BATCH

    start = [net.start(seed)] * WORKERS
    actor = actors(net, run.codec)
    world = MethodWorld(method, start, topology=run.topology, seed=seed, step=step, rate=RATE, actor=actor)
    with np.errstate(all="ignore"):  # what diverges scores what it deserves
        world.run(steps, freely=method.lockstep)
        world.finish()
        return _accuracy(net, method, world), world.sent_nbytes / 1e6


def _accuracy(net: Perceptron, method: Method, world: MethodWorld) -> float:
    samples, vectors = data(), world.vectors()
    models = vectors if isinstance(method, Codistillation) else [np.mean(vectors, axis=0)]
    return statistics.mean(net.accuracy(x, samples.test_x, samples.test_y) for x in models)


def alone(split: str, steps: int) -> Run:
    """Return a run whose workers never talk."""
    return Run("adpsgd:every=1000000", "ring", DENSE, split, steps, 0)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--only", nargs="*", default=[], help="names of strategies")
    parser.add_argument("--codecs", nargs="*", default=[name for name in CODECS if name != DENSE])
    args = parser.parse_args()
    chosen = {one: on for one, on in CONTESTANTS.items() if not args.only or parse(one).name in args.only}
    if args.quick:
        args.seeds, args.steps, args.codecs = 1, 200, QUICK[1]
        chosen = {one: on for one, on in chosen.items() if one in QUICK[0]}
    codecs = [WRITTEN.get(name, name) for name in args.codecs]
    made = Made([(*pair, codec) for pair in chosen.items() for codec in (DENSE, *codecs)], args)
    lines: dict[str, list[float | None]] = {}
    rows: list[Row] = [
        row(f"workers that never talk, {split}", made.found[alone(split, args.steps)][0], "%") for split in LOSS
    ]
    for strategy, topology in chosen.items():
        # choco has no dense form: it is compared with what that would be.
        dense = ("dpsgd" if strategy == "choco" else strategy, topology, DENSE)
        line = lines[f"{strategy} on {topology}"] = [made.mean(*dense, split)[0] for split in LOSS]
        for codec in codecs:
            if not takes_codec(parse(strategy), codec):
                line.append(None)
                continue
            for split, most in LOSS.items():
                below = made.mean(*dense, split)[0] - made.mean(strategy, topology, codec, split)[0]
                title = f"{strategy} on {topology}, {codec}, {split}"
                rows.append(row(title, below, "points below dense", at_most=most))
            line.append(made.mean(*dense, "alike")[1] / made.mean(strategy, topology, codec, "alike")[1])
    columns = ("dense, alike, %", "dense, apart, %", *codecs)
    report("rounds", rows, args, Grid("bytes of dense / bytes", columns, lines))


class Made:
    """All runs of these triples of strategy, topology and codec, made."""

    def __init__(self, triples: Sequence[tuple[str, str, str]], args: argparse.Namespace) -> None:
        self.steps, self.seeds = args.steps, range(args.seeds)
        wanted = [alone(split, args.steps) for split in LOSS]
        for strategy, topology, codec in triples:
            one = "dpsgd" if (strategy, codec) == ("choco", DENSE) else strategy
            if takes_codec(parse(one), codec):
                wanted += [Run(one, topology, codec, split, args.steps, seed) for split in LOSS for seed in self.seeds]
        wanted = list(dict.fromkeys(wanted))
        self.found: dict[Run, tuple[float, float]] = {}
        with ProcessPoolExecutor(args.jobs) as pool:
            for run, found in zip(wanted, pool.map(trained, wanted, chunksize=4), strict=True):
                self.found[run] = found
                print(f"{run}: {found[0]:.2f}%, {found[1]:.3f} MB", file=sys.stderr, flush=True)

    def mean(self, strategy: str, topology: str, codec: str, split: str) -> tuple[float, float]:
        """Return the means of accuracy and megabytes over the seeds."""
        runs = [self.found[Run(strategy, topology, codec, split, self.steps, seed)] for seed in self.seeds]
        return statistics.mean(run[0] for run in runs), statistics.mean(run[1] for run in runs)


if __name__ == "__main__":
    main()
