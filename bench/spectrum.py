"""Which strategy for which machines? Every strategy on MNIST, 4 workers, with a straggler and without.

Steps are padded to 30 ms by sleeping (see ``jobs/spectrum.py``), 120 ms for the straggler, so that the machine's cores
are not what is measured. One pass over half of MNIST per run; accuracy is of the model that comes out, the mean over
seeds, with the spread between them. Throughput and waiting are of the time in which all workers had data: the tail, in
which one of them finishes the last lease, is not part of it. The shapes that the literature reports are the bars.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from processes import Made, taut_run
from report import Row, arguments, report, row

SHARED = Path(__file__).parents[2] / "shared"
STRAGGLER = 4.0
WORKERS = 4
# strategy -> topology
RING, COMPLETE = "ring", "complete"
SPECTRUM: dict[str, str] = {
    "independent": COMPLETE,
    "sync": COMPLETE,
    "sync:backup=1": COMPLETE,
    "ssp:3": COMPLETE,
    "async": COMPLETE,
    "relay": RING,
    "server": "star",
    "gossip": RING,
    "dpsgd": RING,
    "adpsgd": RING,
    "sgp": "exponential",
    "gossipgrad": COMPLETE,
    "choco": RING,
    "relaysgd": RING,
    "averaging:8": COMPLETE,
    "fedavg": COMPLETE,
    "easgd": COMPLETE,
    "diloco": COMPLETE,
    "dynamic": COMPLETE,
    "admm": COMPLETE,
    "codistillation": COMPLETE,
}
QUICK = ("sync", "async", "adpsgd")


def one_run(strategy: str, seed: int, straggler: float, args: argparse.Namespace, folder: Path) -> Made:
    options = ["--strategy", strategy, "--topology", SPECTRUM[strategy], "--seed", str(seed)]
    job = ["--data", str((args.data / "mnist").resolve()), "--seed", str(seed), "--straggler", str(straggler)]
    if args.quick:
        job += ["--samples", "16000"]
    name = f"{strategy}-{seed}-{straggler:g}".replace(":", "-")
    return taut_run("spectrum.py", job, folder / name, workers=WORKERS, options=options)


def together(made: Made) -> tuple[float, float]:
    """Samples per second of all workers, and the share of their time that they waited, while all had data."""
    begun_s = max(r["ends"][0][0] for r in made.records)
    ended_s = min(r["ends"][-1][0] for r in made.records)
    samples, waited_s = 0, 0.0
    for record in made.records:
        within = [end for end in record["ends"] if begun_s <= end[0] <= ended_s]
        samples += sum(count for _, count, _ in within[1:])
        waited_s += within[-1][2] - within[0][2]
    span_s = ended_s - begun_s
    return samples / span_s, waited_s / span_s / len(made.records)


def figures(made: list[Made]) -> dict[str, float]:
    """Means over seeds, and the accuracy's spread."""
    accuracy = [float(one.outcome["validation"]["chosen"]) for one in made]
    return {
        "accuracy": statistics.mean(accuracy),
        "spread": max(accuracy) - min(accuracy),
        "samples_per_s": statistics.mean(together(one)[0] for one in made),
        "megabytes": statistics.mean(one.outcome["bytes_sent"] for one in made) / 1e6,
        "wait": statistics.mean(together(one)[1] for one in made),
        "consensus": statistics.mean(float(one.outcome["consensus_distance"]) for one in made),
    }


UNITS = {"accuracy": "%", "spread": "points", "samples_per_s": "1/s", "megabytes": "MB", "wait": "", "consensus": ""}


def shapes(found: dict[tuple[str, float], dict[str, float]]) -> list[Row]:
    """What the literature reports of stragglers, as bars on the share of throughput that is kept."""
    kept = {
        strategy: found[strategy, STRAGGLER]["samples_per_s"] / found[strategy, 1.0]["samples_per_s"]
        for strategy, slowness in found
        if slowness == 1.0
    }
    ideal = (WORKERS - 1 + 1 / STRAGGLER) / WORKERS
    rows = [row(f"{strategy}: throughput kept", share, "x") for strategy, share in kept.items()]
    if "sync" in kept:
        rows.append(row("sync slows to the straggler: kept", kept["sync"], "x", at_most=1.3 / STRAGGLER))
    for strategy in ("async", "adpsgd"):
        if strategy in kept:
            rows.append(row(f"{strategy} keeps (p - 1 + 1/4)/p: of that", kept[strategy] / ideal, "x", at_least=0.9))
    if "sync:backup=1" in kept:
        rows.append(row("backup workers remove it: kept", kept["sync:backup=1"], "x", at_least=0.7))
    if {"ssp:3", "sync", "async"} <= set(kept):
        ssp, sync, free = (found[strategy, STRAGGLER]["samples_per_s"] for strategy in ("ssp:3", "sync", "async"))
        rows.append(row("with a straggler, ssp against sync", ssp / sync, "x", at_least=1.0))
        rows.append(row("with a straggler, ssp against async", ssp / free, "x", at_most=1.0))
    return rows


def table(found: dict[tuple[str, float], dict[str, float]]) -> list[Row]:
    rows = []
    for (strategy, slowness), values in found.items():
        name = strategy if slowness == 1.0 else f"{strategy}, straggler"
        rows += [row(f"{name}: {kind}", value, UNITS[kind]) for kind, value in values.items()]
    return rows


def made_so_far(path: Path | None) -> dict[tuple[str, float], dict[str, float]]:
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {(strategy, slowness): values for strategy, slowness, values in lines}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, default=SHARED / "data", help="holds mnist/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=1, help="so many runs at a time, on a machine with cores for it")
    parser.add_argument("--resume", type=Path, help="a file of the cells made so far (JSON lines): go on from there")
    parser.add_argument("--only", nargs="+", choices=sorted(SPECTRUM), help="these strategies")
    args = parser.parse_args()
    chosen: Any = args.only or (QUICK if args.quick else SPECTRUM)
    seeds = range(1 if args.quick else args.seeds)
    cells = [(strategy, slowness) for strategy in chosen for slowness in (1.0, STRAGGLER)]
    found = made_so_far(args.resume)
    cells = [cell for cell in cells if cell not in found]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.parallel) as pool:

        def all_seeds(cell: tuple[str, float]) -> list[Made]:
            return [one_run(cell[0], seed, cell[1], args, Path(folder)) for seed in seeds]

        for cell, made in zip(cells, pool.map(all_seeds, cells), strict=True):
            found[cell] = figures(made)
            shown = ", ".join(f"{kind} {value:.4g}" for kind, value in found[cell].items())
            if args.resume:
                with args.resume.open("a") as file:
                    file.write(json.dumps([*cell, found[cell]]) + "\n")
            print(f"{cell[0]}, slowest {cell[1]:g}x: {shown}", file=sys.stderr, flush=True)
    report("spectrum-some" if args.only else "spectrum", [*table(found), *shapes(found)], args)


if __name__ == "__main__":
    main()
