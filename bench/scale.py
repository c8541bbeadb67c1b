"""How far does each strategy scale? From 4 to 10,000 workers, in the simulator, by sizes and durations alone.

ResNet-50 (25.6 million parameters), steps of 250 ms that vary by 10% (lognormal), cables of 1 Gbit/s and 50 us one way.
Efficiency is the steps made in the middle half of the run over those that workers who never wait would make in that time;
bytes are those that the busiest worker sends per step, in that half. Who never waits is efficient even where the network
carries only part of what is sent: so there is also the efficiency of the whole run, until all that was sent has arrived.
Staleness is as the strategy measures it, in steps. The consensus distance is how far replicas stray from their mean if
every step moves each of them by noise, in units of one step's noise (``simulator/timing/noise.py``); complete strategies
have none after a drain. A strategy is not asked beyond where it broke (an efficiency under 1%, or too many links).
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from report import RESULTS, Row, arguments, report, row
from taut.errors import Misuse
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.presets import PRESETS
from taut.simulator.scenario import Scenario
from taut.simulator.timing.simulation import simulate_timing

WORKERS = (4, 16, 64, 128, 256, 1024, 4096, 10_000)
STEP_S = 0.25
BROKEN = 0.01
DRAINED = 256  # workers: with more the end of a run is not simulated
# name -> strategy, topology, codec, the most workers that take a bearable time to simulate
METHODS = {
    "sync, ring": ("sync", "ring", "dense", 10_000),
    "sync, halving-doubling": ("sync:schedule=halving-doubling", "complete", "dense", 1024),
    "ssp:3, tether": ("ssp:3", "complete", "tether", 64),
    "async, tether": ("async", "complete", "tether", 64),
    "async over a tree, tether": ("async", "tree", "tether", 256),
    "server, dense": ("server", "star", "dense", 10_000),
    "dpsgd, ring": ("dpsgd", "ring", "dense", 10_000),
    "dpsgd, torus": ("dpsgd", "torus", "dense", 10_000),
    "adpsgd, torus": ("adpsgd", "torus", "dense", 10_000),
    "sgp, one-peer exponential": ("sgp", "one-peer", "dense", 4096),
    "gossip, torus, tether": ("gossip", "torus", "tether", 10_000),
    "averaging:64": ("averaging:64", "ring", "dense", 10_000),
    "diloco": ("diloco", "ring", "dense", 10_000),
}
PERIODS = {"averaging:64": 64, "diloco": 100}  # steps between two averages
STRAYING = ("dpsgd", "adpsgd", "sgp")


@dataclass(frozen=True)
class Cell:
    efficiency: float
    drained: float | None
    megabytes: float
    staleness: float
    distance: float | None


def scenario(name: str, workers: int, args: argparse.Namespace) -> Scenario:
    strategy, topology, codec, _ = METHODS[name]
    if strategy in PERIODS:
        steps = 2 * PERIODS[strategy]
    elif workers <= 16 or topology == "tree":
        steps = 40
    else:
        steps = 12 if topology != "complete" or strategy.startswith("sync") else 8
    return Scenario(
        workers=workers,
        strategy=strategy,
        topology=topology,
        codec=codec,
        steps=steps,
        parameters=PRESETS["resnet50"].parameters,
        links=Links(Link(args.gbit * 1e9, 50e-6)),
        speeds=Speeds(step_s=STEP_S, draw="lognormal:0.1"),
    )


def figures(name: str, workers: int, args: argparse.Namespace) -> Cell:
    given = scenario(name, workers, args)
    found = simulate_timing(given)
    made = list(found.workers.values())
    steady = found.counted
    distance = None
    if given.strategy in STRAYING:
        distance = simulate_timing(given, noise=True).consensus
    return Cell(
        steady["steps_per_s"] * STEP_S / workers,
        sum(one.compute_s for one in made) / sum(one.wall_s for one in made) if workers <= DRAINED else None,
        steady["busiest_nbytes"] / 1e6,
        sum(one.staleness for one in made) / len(made),
        distance,
    )


def study(args: argparse.Namespace) -> dict[tuple[str, int], Cell | str]:
    found: dict[tuple[str, int], Cell | str] = {}
    for name in args.only or METHODS:
        for workers in args.workers:
            if workers > METHODS[name][3]:
                found[name, workers] = "not simulated"
                continue
            try:
                cell = found[name, workers] = figures(name, workers, args)
            except Misuse as error:
                found[name, workers] = str(error)
                print(f"{name}, {workers:,} workers: {error}", file=sys.stderr, flush=True)
                break
            print(f"{name}, {workers:,} workers: {cell}", file=sys.stderr, flush=True)
            if cell.efficiency < BROKEN:
                break
    return found


def rows_of(found: dict[tuple[str, int], Cell | str]) -> list[Row]:
    rows = []
    for (name, workers), cell in found.items():
        if isinstance(cell, str):
            continue
        rows.append(row(f"{name}, {workers}: efficiency", cell.efficiency, ""))
        if cell.drained is not None:
            rows.append(row(f"{name}, {workers}: efficiency until all has arrived", cell.drained, ""))
        rows.append(row(f"{name}, {workers}: sent per step by the busiest", cell.megabytes, "MB"))
        rows.append(row(f"{name}, {workers}: staleness", cell.staleness, "steps"))
        if cell.distance is not None:
            rows.append(row(f"{name}, {workers}: consensus distance", cell.distance, "steps' noise"))
    return rows


def draw(found: dict[tuple[str, int], Cell | str], path: Path) -> None:
    """Efficiency against workers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for number, name in enumerate(METHODS):
        points = [(p, cell.efficiency) for (one, p), cell in found.items() if one == name and isinstance(cell, Cell)]
        if points:
            style = ("-", "--", ":")[number // 5 % 3]
            axes.plot(*zip(*points, strict=True), style, marker="o", markersize=4, label=name, color=f"C{number % 10}")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("workers")
    axes.set_ylabel("efficiency (share of time computing)")
    axes.set_title("ResNet-50, steps of 250 ms, 1 Gbit/s: simulated", loc="left", fontsize=11)
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS))
    parser.add_argument("--only", nargs="+", choices=sorted(METHODS))
    parser.add_argument("--gbit", type=float, default=1.0, help="bandwidth of the cables")
    args = parser.parse_args()
    if args.quick:
        args.workers = [4, 64]
    found = study(args)
    if not args.quick and not args.only:
        draw(found, RESULTS / "scale.png")
    report("scale-some" if args.only else "scale", rows_of(found), args)


if __name__ == "__main__":
    main()
