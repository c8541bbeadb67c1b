"""Does a cluster give what it promises: the model of synchronous training, at the speed of workers that never talk?

MNIST MLP 784-512-512-10, batch 64, SGD lr 0.1 momentum 0.9, one torch thread per worker; real processes. Everything that
is compared is measured in turn, several times over, and the ratios of neighbours in time are what counts; start-up and
drain are not part of a rate. ``--only`` picks parts: quality, text, throughput, hosts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from processes import Made, hosts, hosts_run, median_ratio, plain_run, taut_run, why_no_hosts
from quality import byte_rows, mnist, shakespeare
from report import Row, arguments, report, row

SHARED = Path(__file__).resolve().parents[2] / "shared"
PARTS = ("quality", "text", "throughput", "hosts")
EXCHANGE = ("encode", "send", "merge")
Measured = dict[str, list[Made]]


def in_turn(ways: dict[str, Callable[[], Made]], repetitions: int) -> Measured:
    """Make every run once, then all again."""
    made: Measured = {name: [] for name in ways}
    for _ in range(repetitions):
        for name, way in ways.items():
            made[name].append(way())
    return made


def rates(made: Measured, name: str) -> list[float]:
    return [one.samples_per_s for one in made[name]]


def ratio(made: Measured, above: str, below: str) -> float:
    return median_ratio(rates(made, above), rates(made, below))


def against_plain(made: Measured, name: str, plain: str) -> list[Row]:
    """The bound is so many processes that know nothing of each other."""
    cpu_s = {way: [one.cpu_s_per_step for one in made[way]] for way in (name, plain)}
    return [
        row(f"{name} / {plain}", ratio(made, name, plain), "x", at_least=0.85),
        row(f"{name} / {plain}, by CPU time", median_ratio(cpu_s[plain], cpu_s[name]), "x"),
    ]


def described(made: Measured) -> list[Row]:
    """Every way's own figures, without bars."""
    rows = []
    for name, runs in made.items():
        rows.append(row(f"{name}: rate", statistics.median(rates(made, name)), "samples/s"))
        rows.append(row(f"{name}: CPU time", statistics.median(r.cpu_s_per_step for r in runs) * 1e3, "ms/step"))
    return rows


def exchange_rows(made: Measured, name: str) -> list[Row]:
    parts = {kind: statistics.median(one.share(kind) for one in made[name]) * 100 for kind in EXCHANGE}
    whole = statistics.median(one.share(*EXCHANGE) for one in made[name]) * 100
    rows = [row(f"{name}: {kind}", value, "% of time") for kind, value in parts.items()]
    return [*rows, row(f"{name}: encode + send + merge", whole, "% of time", at_most=8.0)]


class Throughput:
    """The ways to train MNIST that are compared for speed. ``samples`` are those of each process."""

    def __init__(self, data: Path, folder: Path, samples: int) -> None:
        self.data, self.folder, self.samples = data, folder, samples

    def args(self, processes: int) -> list[str]:
        total = self.samples * processes
        epochs = -(-total // 60_000)
        return ["--data", str(self.data), "--samples", str(total // epochs), "--epochs", str(epochs)]

    def plain(self, processes: int) -> Callable[[], Made]:
        return lambda: plain_run("mnist.py", self.args(processes), self.folder / "plain", processes=processes)

    def taut(self, workers: int, *options: str) -> Callable[[], Made]:
        return lambda: taut_run("mnist.py", self.args(workers), self.folder / "taut", workers=workers, options=options)

    def hosts(self, netlab: Path, workers: int) -> Callable[[], Made]:
        return lambda: hosts_run(netlab, "mnist.py", self.args(workers), self.folder / "hosts", workers=workers)


def throughput(speed: Throughput, repetitions: int, quick: bool) -> list[Row]:
    ways = {"1 plain": speed.plain(1), "2 tether": speed.taut(2), "2 plain": speed.plain(2)}
    if not quick:
        ways |= {
            "2 threshold": speed.taut(2, "--codec", "threshold"),
            "4 plain": speed.plain(4),
            "4 tether": speed.taut(4),
            "4 independent": speed.taut(4, "--strategy", "independent"),
            "4 threshold": speed.taut(4, "--codec", "threshold"),
        }
    made = in_turn(ways, repetitions)
    same = all(one.outcome["replicas_identical"] for one in made["2 tether"])
    rows = described(made)
    rows.append(row("2 tether / 1 plain", ratio(made, "2 tether", "1 plain"), "x", at_least=1.8))
    rows.append(row("2 plain / 1 plain: the machine's own", ratio(made, "2 plain", "1 plain"), "x"))
    rows += exchange_rows(made, "2 tether")
    if not quick:
        rows += exchange_rows(made, "4 tether")
        rows += exchange_rows(made, "4 threshold")[-1:]
        rows += against_plain(made, "4 tether", "4 plain")
        rows.append(row("4 tether / 4 independent", ratio(made, "4 tether", "4 independent"), "x", at_least=0.85))
    return [*rows, row("replicas identical", float(same), "", at_least=1.0)]


def over_hosts(speed: Throughput, netlab: Path, repetitions: int) -> list[Row]:
    name = "4 hosts at 100 Mbit/s"
    with hosts(netlab, 4, "100mbit"):
        made = in_turn({"4 plain, no network": speed.plain(4), name: speed.hosts(netlab, 4)}, repetitions)
    same = all(one.outcome["replicas_identical"] for one in made[name])
    return [
        *described(made),
        *against_plain(made, name, "4 plain, no network"),
        *exchange_rows(made, name)[:-1],
        *byte_rows(name, made[name]),
        row(f"{name}: replicas identical", float(same), "", at_least=1.0),
    ]


def measure(args: argparse.Namespace, folder: Path) -> list[Row]:
    data, text = args.data / "mnist", args.data / "tinyshakespeare" / "input.txt"
    speed = Throughput(data, folder, samples=15_000 if args.quick else 45_000)
    repetitions = 1 if args.quick else args.repetitions
    rows: list[Row] = []
    if "throughput" in args.only:
        rows += throughput(speed, repetitions, args.quick)
    if "hosts" in args.only and not args.quick:
        reason = why_no_hosts(args.netlab)
        if reason:
            print(f"skipped: 4 hosts at 100 Mbit/s: {reason}", file=sys.stderr)
        else:
            rows += over_hosts(speed, args.netlab, repetitions)
    if "quality" in args.only and not args.quick:
        for workers in (4, 2):
            rows += mnist(data, folder, range(args.seeds), workers, ["tether", "threshold"])
    if "text" in args.only and not args.quick:
        rows += shakespeare(text, folder, range(args.seeds))
    return rows


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, default=SHARED / "data", help="holds mnist/ and tinyshakespeare/")
    parser.add_argument("--netlab", type=Path, default=SHARED / "netlab" / "netlab.sh")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    if not (args.data / "mnist" / "train-images-idx3-ubyte.gz").exists():
        parser.error(f"no MNIST in {args.data / 'mnist'}: --data must name a folder with mnist/*-ubyte.gz (IDX files)")
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        rows = measure(args, Path(folder))
    name = "cluster" if set(args.only) == set(PARTS) else "cluster-" + "-".join(sorted(args.only))
    report(name, rows, args)


if __name__ == "__main__":
    main()
