"""Which strategy for which machines? Every strategy on MNIST, 4 workers, with a straggler and without.

Steps are padded to 15 ms by sleeping (see ``jobs/spectrum.py``), 60 ms for the straggler, so that the machine's cores are
not what is measured. One pass over MNIST per run; accuracy is of the model that comes out, the mean over seeds, with the
spread between them. The shapes that the literature reports are the bars.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
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
    job = ["--data", str(args.data / "mnist"), "--seed", str(seed), "--straggler", str(straggler)]
    if args.quick:
        job += ["--samples", "12000"]
    return taut_run("spectrum.py", job, folder / "run", workers=WORKERS, options=options)


def figures(made: list[Made]) -> dict[str, float]:
    """Means over seeds, and the accuracy's spread."""
    accuracy = [float(one.outcome["validation"]["chosen"]) for one in made]
    return {
        "accuracy": statistics.mean(accuracy),
        "spread": max(accuracy) - min(accuracy),
        "samples_per_s": statistics.mean(one.samples_per_s for one in made),
        "megabytes": statistics.mean(one.outcome["bytes_sent"] for one in made) / 1e6,
        "wait": statistics.mean(one.share("wait") for one in made),
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
    if "ssp:3" in kept:
        rows.append(row("ssp lies above sync by", kept["ssp:3"] - kept["sync"], "x", at_least=0.0))
        rows.append(row("ssp lies below async by", kept["async"] - kept["ssp:3"], "x", at_least=0.0))
    return rows


def table(found: dict[tuple[str, float], dict[str, float]]) -> list[Row]:
    rows = []
    for (strategy, slowness), values in found.items():
        name = strategy if slowness == 1.0 else f"{strategy}, straggler"
        rows += [row(f"{name}: {kind}", value, UNITS[kind]) for kind, value in values.items()]
    return rows


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, default=SHARED / "data", help="holds mnist/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=sorted(SPECTRUM), help="these strategies")
    args = parser.parse_args()
    chosen: Any = args.only or (QUICK if args.quick else SPECTRUM)
    seeds = range(1 if args.quick else args.seeds)
    found: dict[tuple[str, float], dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for strategy in chosen:
            for slowness in (1.0, STRAGGLER):
                made = [one_run(strategy, seed, slowness, args, Path(folder)) for seed in seeds]
                found[strategy, slowness] = figures(made)
                print(strategy, slowness, {k: round(v, 4) for k, v in found[strategy, slowness].items()}, flush=True)
    report("spectrum", [*table(found), *shapes(found)], args)


if __name__ == "__main__":
    main()
