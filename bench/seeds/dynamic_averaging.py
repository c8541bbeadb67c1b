"""Does dynamic averaging send a tenth of what periodic averaging sends, at the same accuracy? MNIST, with concept drift.

Kamp et al. 2018: workers that average only when one of them has strayed too far send an order of magnitude less than with
a fixed period, and more only after the data has changed. Here 8 workers train a small perceptron in virtual time, by the
very method objects of the runtime (``MethodWorld``), from the same seeds and at the same rate. Three kinds of data:

    steady  every worker draws from all digits
    drift   the same, but halfway through the digits swap their labels
    apart   every worker has one or two digits only

Accuracy is that of the mean model on the test set (of the new labels, after a drift); the loss is the mean over all
samples as they were trained on, before each step: what a learner in service would have paid. The bars compare ``dynamic``
as it is by default with ``averaging:every=10``, which checks as often as it: a tenth of the bytes, at most 0.5 points.
Longer periods stand beside them: they save bytes, too.

    python bench/seeds/dynamic_averaging.py [--data ../shared/data] [--seeds 3] [--steps 1000] [--quick] [--json]
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from noniid import CLASSES, Data, Perceptron, digits, mnist
from report import Grid, Row, arguments, report, row
from taut.strategies import parse
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
PERIODIC, DYNAMIC = "averaging:every=10", "dynamic:every=10"
CONTESTANTS = (
    PERIODIC,
    "averaging:every=40",
    "averaging:every=100",
    "averaging:every=200",
    DYNAMIC,
    "dynamic:every=10,threshold=0.1",
    "dynamic:every=10,threshold=1",
    "dynamic:every=10,threshold=10",
    "averaging:every=1000000",  # at the end alone
)
KINDS = ("steady", "drift", "apart")
WORKERS, BATCH, HIDDEN, RATE = 8, 16, 64, 0.1
FEWER, BELOW = 10.0, 0.5  # times, points


def trained(data: Data, strategy: str, kind: str, steps: int, seed: int) -> tuple[float, float, float]:
    """Return the accuracy in percent, the loss per sample, and the megabytes that were sent."""
    method = parse(strategy).method()
    net = Perceptron(data.x.shape[1], HIDDEN)
    dice = np.random.default_rng(seed)
    order, swapped = dice.permutation(len(data.y)), dice.permutation(CLASSES)
    if kind == "apart":
        order = order[np.argsort(data.y[order], kind="stable")]
    shares = np.array_split(order, WORKERS)
    draws = [np.random.default_rng([seed, rank]) for rank in range(WORKERS)]
    paid = 0.0

    def step(actor: Actor) -> int:
        nonlocal paid
        batch = draws[actor.rank].choice(shares[actor.rank], BATCH)
        x, y = data.x[batch], data.y[batch]
        if kind == "drift" and actor.steps >= steps // 2:
            y = swapped[y]
        paid += loss(net, actor.x, x, y)
        actor.x -= np.float32(RATE * (1 - actor.steps / (2 * steps))) * net.gradient(actor.x, x, y)
        return BATCH

    world = MethodWorld(method, [net.start(seed)] * WORKERS, seed=seed, step=step, rate=RATE)
    world.run(steps, freely=method.lockstep)
    world.finish()
    labels = swapped[data.test_y] if kind == "drift" else data.test_y
    accuracy = net.accuracy(np.mean(world.vectors(), axis=0), data.test_x, labels)
    trained_on = sum(actor.steps for actor in world.actors.values())
    return accuracy, paid / trained_on, world.sent_nbytes / 1e6


def loss(net: Perceptron, vector: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    w1, b1, w2, b2 = net.parts(vector)
    scores = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    scores -= scores.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(y)), y]))


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED, help="the folder that has mnist/; else small digits")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    chosen = CONTESTANTS
    if args.quick:
        args.seeds, args.steps, chosen = 1, 600, (PERIODIC, DYNAMIC)
    folder = args.data / "mnist"
    data = digits() if args.quick or not folder.is_dir() else mnist(folder)
    rows: list[Row] = []
    lines: dict[str, list[float | None]] = {strategy: [] for strategy in chosen}
    for kind in KINDS:
        found: dict[str, tuple[float, ...]] = {}
        for strategy in chosen:
            runs = [trained(data, strategy, kind, args.steps, seed) for seed in range(args.seeds)]
            found[strategy] = tuple(statistics.mean(column) for column in zip(*runs, strict=True))
            lines[strategy] += found[strategy]
            print(f"{kind}, {strategy}: {found[strategy]}", file=sys.stderr, flush=True)
        (right, _, sent), (ours, _, we_sent) = found[PERIODIC], found[DYNAMIC]
        rows.append(row(f"{kind}: bytes of {PERIODIC} / {DYNAMIC}", sent / we_sent, "x", at_least=FEWER))
        rows.append(row(f"{kind}: accuracy below {PERIODIC}", right - ours, "points", at_most=BELOW))
    columns = [f"{kind}, {what}" for kind in KINDS for what in ("%", "loss", "MB")]
    report("seeds-dynamic_averaging", rows, args, Grid(f"means of {args.seeds} seeds", columns, lines))


if __name__ == "__main__":
    main()
