"""Does the simulator show the shapes that papers report? Four of them, each with the bars that make it that shape; and
what a death does to each strategy.

    stragglers  bench/spectrum.py's table, 4 workers of which one is 4 times slower, against the real runs in its results
    deaths      the same 4 workers, of which one dies and is noticed 2 s later: what the others do meanwhile
    slack       Ho et al. 2013 (SSP): where steps vary, throughput rises with the slack, from sync's to async's
    gossip      Lian et al. 2017 (D-PSGD): disagreement shrinks by the mixing matrix's second eigenvalue
    periods     Zhang et al. 2015 (EASGD): rarer exchanges leave elastic averaging as good as it is, and ruin Downpour

The first three are about time alone (``simulate_timing``), the others train (``simulate_script``).

    python bench/published.py [--only slack gossip] [--resume FILE] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from processes import JOBS
from published_periods import ETHERNET, periods
from report import RESULTS, Row, arguments, report, row
from spectrum import SHARED, SPECTRUM, STRAGGLER, WORKERS, shapes
from taut.simulator.faults import Fail
from taut.simulator.models.links import Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import HistoryPoint, Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script
from taut.simulator.timing.simulation import simulate_timing
from taut.topologies import parse
from taut.topologies.mixing import matrix, spectral_gap, weights


def told(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def steps_per_s(history: Sequence[HistoryPoint], upto: float = math.inf) -> float:
    """Of all workers, until one of them has ended or all together have made ``upto`` steps. Where points are sparse, what
    lies between them is interpolated.

    >>> steps_per_s([HistoryPoint(1.0, 0, 1, 8, 0), HistoryPoint(2.0, 1, 1, 8, 0), HistoryPoint(3.0, 0, 3, 24, 0)])
    1.5
    """
    made: dict[int, list[tuple[float, int]]] = {}
    for point in history:
        made.setdefault(point.rank, [(0.0, 0)]).append((point.time_s, point.steps))
    ended_s = min(one[-1][0] for one in made.values())
    times = sorted({point.time_s for point in history if point.time_s <= ended_s})
    each = [np.interp(times, [at_s for at_s, _ in one], [steps for _, steps in one]) for one in made.values()]
    total = np.sum(each, axis=0)
    last = min(int(np.searchsorted(total, upto)), len(times) - 1)
    return float(total[last] / times[last])


# ------------------------------------------------------------------------------------------------ stragglers

BATCHES = 469  # of bench/jobs/spectrum.py: half of MNIST, in batches of 64
OLDER = "fedavg"  # its real run was made before workers trained on while a round is held up: nothing to compare with
BY_VALUES = ("dynamic",)  # it talks when weights have strayed, so somebody must train
HERE = Links(per_host=WORKERS)  # the real runs were on one machine


def stragglers(args: argparse.Namespace) -> list[Row]:
    """The table and its bars, and how far it is from the real one."""
    mnist = args.data / "mnist"
    trains = not args.quick and mnist.exists()
    if not trains:
        told(f"left out, for it needs training on MNIST: {', '.join(BY_VALUES)}")
    found: dict[tuple[str, float], dict[str, float]] = {}
    for strategy in SPECTRUM:
        for slowness in (1.0, STRAGGLER) if trains or strategy not in BY_VALUES else ():
            told(f"stragglers: {strategy}, slowest {slowness:g}x")
            found[strategy, slowness] = {"samples_per_s": 64 * _paced(strategy, slowness, mnist)}
    simulated = shapes(found)
    real = {one["name"]: one["value"] for one in json.loads((RESULTS / "spectrum.json").read_text())["rows"]}
    rows, gaps = [], []
    for one in simulated:
        rows.append(one)
        if one.name.endswith(": throughput kept"):
            rows.append(row(f"{one.name}, really", real[one.name], one.unit))
            if not one.name.startswith(OLDER):
                gaps.append(abs(one.value - real[one.name]))
    return [*rows, row("throughput kept: largest difference from real runs", max(gaps), "x", at_most=0.1)]


DEATH_S, DETECT_S = 8.0, 2.0  # late enough that every method has had rounds
STOPPED = {"sync": 0.15, "ssp:3": 0.15}  # who waits for all keeps this at most
TRAIN_ON = dict.fromkeys(("async", "gossip", "adpsgd", "dpsgd", "sgp", "averaging:8", "diloco", "easgd"), 0.75)


def deaths(args: argparse.Namespace) -> list[Row]:
    """What the survivors make until the death is noticed, as a share of what they make in as long before it."""
    rows = []
    for strategy in [each for each in SPECTRUM if each not in BY_VALUES]:
        told(f"deaths: {strategy}")
        given = Scenario(WORKERS, strategy, SPECTRUM[strategy], links=HERE, speeds=Speeds(0.03), parameters=101_770)
        given = replace(given, steps=400, faults=(Fail(WORKERS - 1, DEATH_S),))
        history = simulate_timing(given, detect_s=DETECT_S).history
        before, after = (_made(history, from_s, from_s + DETECT_S) for from_s in (DEATH_S - DETECT_S, DEATH_S))
        bars = {"at_most": STOPPED.get(strategy), "at_least": TRAIN_ON.get(strategy)}
        rows.append(row(f"{strategy}: kept until a death is noticed", after / before, "x", **bars))
    return rows


def _made(history: Sequence[HistoryPoint], from_s: float, until_s: float) -> float:
    """Return the steps that all but the last worker made between these times."""
    made = 0.0
    for rank in range(WORKERS - 1):
        times, steps = zip(*((each.time_s, each.steps) for each in history if each.rank == rank), strict=True)
        made += float(np.interp(until_s, times, steps) - np.interp(from_s, times, steps))
    return made


def _paced(strategy: str, slowness: float, mnist: Path) -> float:
    speeds = Speeds(0.03, stragglers={WORKERS - 1: slowness})
    scenario = Scenario(WORKERS, strategy, SPECTRUM[strategy], links=HERE, speeds=speeds)
    if strategy not in BY_VALUES:  # who is fast makes more of the steps, as where data is dealt: nobody runs out before
        scenario = replace(scenario, parameters=101_770, steps=BATCHES)
        return steps_per_s(simulate_timing(scenario).history, BATCHES)
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        job = ("--data", str(mnist.resolve()), "--out", folder, "--step", "0")
        done = simulate_script(replace(scenario, script=str(JOBS / "spectrum.py"), args=job))
    return steps_per_s(done.history)


# ----------------------------------------------------------------------------------------------------- slack

SLACKS = (0, 1, 3, 10)
SIGMA = 0.5


def slack(args: argparse.Namespace) -> list[Row]:
    """The model is small: bytes are not the question."""
    rows: list[Row] = []
    for workers in (4,) if args.quick else (4, 8):
        told(f"slack: {workers} workers")
        share = {}
        for strategy in ("sync", *(f"ssp:{each}" for each in SLACKS), "async"):
            share[strategy] = statistics.mean(_varied(workers, strategy, args.quick))
            rows.append(row(f"{workers} workers, steps vary: {strategy}, of its ideal", share[strategy], "x"))
        rows.append(row(f"{workers} workers: 1 / mean of the slowest of {workers} steps", 1 / slowest(workers), "x"))
        gains = [share[f"ssp:{b}"] / share[f"ssp:{a}"] for a, b in itertools.pairwise(SLACKS)]
        ends = [abs(share[a] / share[b] - 1) for a, b in (("ssp:0", "sync"), (f"ssp:{SLACKS[-1]}", "async"))]
        rows.append(row(f"{workers} workers: more slack, more throughput: least gain", min(gains), "x", at_least=1.0))
        rows.append(row(f"{workers} workers: slack 0 is sync: difference", ends[0], "", at_most=0.05))
        rows.append(row(f"{workers} workers: slack {SLACKS[-1]} is async: difference", ends[1], "", at_most=0.05))
    return rows


def _varied(workers: int, strategy: str, quick: bool) -> Iterable[float]:
    """Throughput as a share of that of workers who never wait and never talk."""
    for seed in range(1 if quick else 3):
        speeds = Speeds(0.03, f"lognormal:{SIGMA}")
        steps = 300 if quick else 1000
        scenario = Scenario(workers, strategy, seed=seed, steps=steps, parameters=10_000, links=ETHERNET, speeds=speeds)
        yield steps_per_s(simulate_timing(scenario).history) * speeds.step_s / workers


def slowest(workers: int) -> float:
    """The mean of the largest of so many lognormal steps of mean 1: what lock-step pays.

    >>> round(slowest(1), 4), round(slowest(4), 3)
    (1.0, 1.573)
    """
    grid = np.linspace(0.0, 30.0, 30_001)
    below = [0.5 * (1 + math.erf((math.log(x) + SIGMA**2 / 2) / SIGMA / math.sqrt(2))) for x in grid[1:]]
    return float(np.trapezoid(1 - np.array([0.0, *below]) ** workers, grid))


# ---------------------------------------------------------------------------------------------------- gossip

MIXERS = 16
MIXED_STEPS = 45  # few enough for the simulator to look after each
MIXINGS = {"ring": "metropolis", "torus": "metropolis", "exponential": "uniform", "complete": "metropolis"}
FLOOR = 1e-6  # below, float32 rounds


def gossip(args: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for topology, mixing in MIXINGS.items():
        told(f"gossip: {topology}")
        graph = parse(topology).wire(range(MIXERS))
        published = 1 - spectral_gap(matrix(graph.members, weights(graph, mixing)))
        left = disagreement(_mixed(topology, mixing))
        if published < FLOOR:
            rows.append(row(f"{topology}: disagreement after one step", left[0], "", at_most=FLOOR))
            continue
        found = contraction(left)
        rows.append(row(f"{topology}: second eigenvalue", published, ""))
        rows.append(row(f"{topology}: disagreement per step", found, "x"))
        rows.append(row(f"{topology}: difference", abs(found / published - 1), "", at_most=0.05))
    return rows


def _mixed(topology: str, mixing: str) -> Simulated:
    script, samples = str(JOBS / "consensus.py"), str(2 * MIXERS * MIXED_STEPS)
    scenario = Scenario(MIXERS, f"dpsgd:mixing={mixing}", topology, steps=MIXED_STEPS, links=ETHERNET)
    return simulate_script(replace(scenario, script=script, args=("--samples", samples)))


def disagreement(found: Simulated) -> list[float]:
    """After each step of all: before, looks are over those that have made one."""
    first_s = sorted(point.time_s for point in found.history)[len(found.workers) - 1]
    times, distances = zip(*(look for look in found.distances if look[0] >= first_s), strict=True)
    if len(times) < MIXED_STEPS or max(np.diff(times)) > 1.5 * min(np.diff(times)):
        raise AssertionError("the simulator did not look after every step")
    return list(distances)


def contraction(left: Sequence[float]) -> float:
    """The factor per step, by least squares of the logarithms over the later half of what rounding leaves to see, where
    the slowest mode is all there is.

    >>> round(contraction([0.9**step + 0.5**step for step in range(40)]), 3)
    0.9
    """
    seen = [math.log(each) for each in itertools.takewhile(lambda each: each > FLOOR, left)]
    late = seen[len(seen) // 2 :]
    return math.exp(np.polyfit(range(len(late)), late, 1)[0])


# ------------------------------------------------------------------------------------------------------ main

PARTS: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
    "stragglers": stragglers,
    "deaths": deaths,
    "slack": slack,
    "gossip": gossip,
    "periods": periods,
}


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED / "data", help="holds mnist/")
    parser.add_argument("--seeds", type=int, default=3, help="of the periods")
    parser.add_argument(
        "--resume", type=Path, help="a file of the periods' runs made so far (JSON lines): go on from there"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, help="these parts")
    args = parser.parse_args()
    rows = [each for name in args.only or PARTS for each in PARTS[name](args)]
    report("published-some" if args.only else "published", rows, args)


if __name__ == "__main__":
    main()
