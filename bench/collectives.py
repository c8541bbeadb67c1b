"""How fast is an all-reduce: each of our schedules, gloo's, and what the wire allows?

Four hosts of the network lab on one switch, cables of 1 Gbit/s and 100 Mbit/s, 25M float32 each; gloo and ours in
turn, in the same processes. The bound is 2(p-1)/p * bytes / bandwidth. Ours is encrypted (CURVE); gloo is not. Then a
training step of an MLP of 8M parameters on two hosts at 1 Gbit/s, with and without sending during backward.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from processes import JOBS, ONE_THREAD, finished, fresh, hosts, hosts_run, median_ratio, records, why_no_hosts
from report import Row, arguments, report, row

SHARED = Path(__file__).resolve().parents[2] / "shared"
SCHEDULES = ("ring", "halving-doubling", "torus", "tree")
DEFAULT = "ring"
HOSTS = 4
RATES = {"1gbit": 1e9, "100mbit": 1e8}
WARM_UPS = {"1gbit": 2, "100mbit": 1}


def all_reduces(netlab: Path, folder: Path, schedules: list[str], *options: str) -> dict[str, list[tuple[float, float]]]:
    """Per way: seconds until the last host was done, and CPU seconds of all hosts, of each repetition."""
    out = fresh(folder)
    command = [str(netlab), "run", sys.executable, str(JOBS / "collective.py"), "--out", str(out)]
    command += ["--schedules", ",".join(schedules), *options]
    environment = os.environ | ONE_THREAD | {"NETLAB": "bench"}
    finished(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=out, env=environment))
    found = [one["figures"] for one in records(out, HOSTS)]
    return {
        way: [(made[0][0], sum(cpu_s for _, cpu_s in made)) for made in zip(*(one[way] for one in found), strict=True)]
        for way in found[0]
    }


def rows_of(rate: str, elements: int, made: dict[str, list[tuple[float, float]]]) -> list[Row]:
    bound_s = 2 * (HOSTS - 1) / HOSTS * 4 * elements * 8 / RATES[rate]
    rows = [row(f"{rate}: the bound", bound_s, "s")]
    seconds = {way: [wall_s for wall_s, _ in figures] for way, figures in made.items()}
    for way, figures in made.items():
        taken_s = statistics.median(seconds[way])
        cpu_s = statistics.median(one for _, one in figures)
        rows.append(row(f"{rate}: {way}", taken_s, f"s ({bound_s / taken_s:.0%} of the bound, {cpu_s:.1f} s of CPU)"))
    bare, weighted = (median_ratio(seconds[way], seconds[DEFAULT]) for way in ("gloo", "gloo with weighting"))
    rows.append(row(f"{rate}: {DEFAULT}'s speed / gloo's with weighting", weighted, "x"))
    return [*rows, row(f"{rate}: {DEFAULT}'s speed / gloo's", bare, "x", at_least=1.0)]


def overlap(netlab: Path, folder: Path, repetitions: int) -> list[Row]:
    """A training step with buckets, and with one message after backward."""
    ways = {"in buckets": "sync", "after backward": "sync:bucket_mib=0"}
    step_s: dict[str, list[float]] = {way: [] for way in ways}
    with hosts(netlab, 2, "1gbit"):
        for _ in range(repetitions):
            for way, strategy in ways.items():
                made = hosts_run(netlab, "overlap.py", [], folder, workers=2, options=["--strategy", strategy])
                step_s[way].append(statistics.mean(one["step_s"] for one in made.records))
    rows = [row(f"8M parameters, 2 hosts at 1gbit: step, {way}", statistics.median(step_s[way]), "s") for way in ways]
    gain = median_ratio(step_s["after backward"], step_s["in buckets"])
    return [*rows, row("after backward / in buckets", gain, "x", at_least=1.0)]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--netlab", type=Path, default=SHARED / "netlab" / "netlab.sh")
    parser.add_argument("--elements", type=int, help="by default 25 million; 2.5 million where --quick")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--rates", nargs="+", choices=RATES, default=list(RATES))
    parser.add_argument("--schedules", nargs="+", choices=SCHEDULES, default=list(SCHEDULES))
    parser.add_argument("--no-overlap", action="store_true", help="leave the training step with buckets out")
    args = parser.parse_args()
    if DEFAULT not in args.schedules:
        parser.error(f"--schedules must name {DEFAULT}, which is what the bars are about")
    reason = why_no_hosts(args.netlab)
    if reason:
        parser.error(f"no network lab: {reason}")
    elements = args.elements or (2_500_000 if args.quick else 25_000_000)
    report("collectives", measure(args, elements), args)


def measure(args: argparse.Namespace, elements: int) -> list[Row]:
    rows: list[Row] = []

    def add(more: list[Row]) -> None:
        rows.extend(more)
        for one in more:
            print(f"{one.name}: {one.value:.4g} {one.unit}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        for rate in args.rates:
            with hosts(args.netlab, HOSTS, rate):
                options = {"elements": elements, "repetitions": args.repetitions, "warm-ups": WARM_UPS[rate]}
                written = [word for name, value in options.items() for word in (f"--{name}", str(value))]
                made = all_reduces(args.netlab, Path(folder) / "out", args.schedules, *written)
            add(rows_of(rate, elements, made))
        if not args.no_overlap:
            add(overlap(args.netlab, Path(folder) / "overlap", 1 if args.quick else args.repetitions))
    return rows


if __name__ == "__main__":
    main()
