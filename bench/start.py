"""How long from the command to the first step, and from the last step to the saved model, against bytes / bandwidth?

``hosts``: 4 workers (and 8), each on a host of the network lab, and the supervisor on another; 8.6 million parameters,
links of 100 Mbit/s and 1 Gbit/s. With equal seeds nothing is sent before the first step; with different seeds the state
goes from one worker to all others, in a chain. All hosts share the cores of this machine, also for encryption, which real
hosts do not: see the load. ``machine``: 163 million parameters, 2 workers and their supervisor on this machine.
Needs root, Debian's iproute2 and the network lab (``--netlab``); without them, ``hosts`` is left out.
"""

from __future__ import annotations

import argparse
import re
import sqlite3
import statistics
import sys
import tempfile
from pathlib import Path

from processes import Made, hosts, hosts_run, taut_run, why_no_hosts
from report import Row, arguments, report, row

SHARED = Path(__file__).resolve().parents[2] / "shared"
RATES = {"100mbit": ("100 Mbit/s", 100e6), "1gbit": ("1 Gbit/s", 1e9)}
RECEIVERS = {3: 1.2, 7: 1.4}  # and at most so many times bytes / bandwidth for the state
PARAMETERS, LARGE = 8_600_000, 163_000_000
PARTS = ("hosts", "machine")


def stamps(made: Made, name: str) -> list[float]:
    return [record[name] for record in made.records if name in record]


def first_step_s(made: Made) -> float:
    return min(stamps(made, "first_s")) - made.command_s


def to_saved_s(made: Made) -> float:
    return max(stamps(made, "saved_s")) - max(stamps(made, "last_s"))


def delivered_s(made: Made) -> float:
    """Return how long the final model took from the worker to the supervisor, as that noted it down."""
    (path,) = made.folder.glob("runs/*/run.sqlite")
    with sqlite3.connect(path) as store:
        ((text,),) = store.execute("SELECT text FROM event WHERE kind = 'model'")
    found = re.search(r" in ([0-9.]+) s", text)
    assert found is not None, text
    return float(found[1])


def on_hosts(netlab: Path, folder: Path, rate: str, receivers: int, repetitions: int) -> list[Row]:
    name, bits_per_s = RATES[rate]
    equal: list[Made] = []
    different: list[Made] = []
    with hosts(netlab, receivers + 2, rate):
        for _ in range(repetitions):
            for differ, made in (([], equal), (["--differ"], different)):
                args = ["--parameters", str(PARAMETERS), *differ]
                made.append(hosts_run(netlab, "start.py", args, folder / "hosts", workers=receivers + 1, first=2))
    ideal_s = 8 * made[0].records[0]["nbytes"] / bits_per_s
    state_s = [max(stamps(one, "fetch_took_s")) for one in different]
    model_s = [delivered_s(one) for one in equal + different]
    sent = sum(any(stamps(one, "fetch_took_s")) for one in equal)
    where = f"{name}, {receivers + 1} workers"
    return [
        row(f"{where}: bytes / bandwidth", ideal_s, "s"),
        row(f"{where}, equal seeds: command to first step", statistics.median(map(first_step_s, equal)), "s"),
        row(f"{where}, equal seeds: runs in which a state was sent", sent, "", at_most=0),
        row(f"{where}, different seeds: command to first step", statistics.median(map(first_step_s, different)), "s"),
        row(f"{where}: the state, to {receivers} receivers", statistics.median(state_s), "s"),
        row(
            f"{where}: the state / (bytes / bandwidth), the best",
            min(state_s) / ideal_s,
            "x",
            at_most=RECEIVERS[receivers],
        ),
        row(f"{where}: last step to saved model", statistics.median(map(to_saved_s, equal + different)), "s"),
        row(f"{where}: of that, the model to the supervisor", statistics.median(model_s), "s"),
        row(
            f"{where}: the model to the supervisor / (bytes / bandwidth), the best",
            min(model_s) / ideal_s,
            "x",
            at_most=1.3,
        ),
    ]


def on_this_machine(folder: Path, parameters: int, repetitions: int) -> list[Row]:
    args = ["--parameters", str(parameters)]
    made = [taut_run("start.py", args, folder / "machine", workers=2) for _ in range(repetitions)]
    gigabytes = made[0].records[0]["nbytes"] / 1e9
    name = f"one machine, {gigabytes * 1e3:.0f} MB"
    return [
        row(f"{name}: last step to saved model", statistics.median(map(to_saved_s, made)), "s"),
        row(f"{name}: of that, the model to the supervisor", statistics.median(map(delivered_s, made)), "s"),
        row(
            f"{name}: the model to the supervisor, the best",
            gigabytes / min(map(delivered_s, made)),
            "GB/s",
            at_least=1.0,
        ),
    ]


def measure(args: argparse.Namespace, folder: Path) -> list[Row]:
    rows: list[Row] = []
    repetitions = 1 if args.quick else args.repetitions
    reason = why_no_hosts(args.netlab)
    if "hosts" in args.only and reason:
        print(f"skipped: hosts of the network lab: {reason}", file=sys.stderr)
    elif "hosts" in args.only:
        cases = [("1gbit", 3)] if args.quick else [(rate, receivers) for receivers in RECEIVERS for rate in RATES]
        for rate, receivers in cases:
            rows += on_hosts(args.netlab, folder, rate, receivers, repetitions)
    if "machine" in args.only:
        rows += on_this_machine(folder, PARAMETERS if args.quick else LARGE, repetitions)
    return rows


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--netlab", type=Path, default=SHARED / "netlab" / "netlab.sh")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repetitions", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        rows = measure(args, Path(folder))
    report("start" if set(args.only) == set(PARTS) else "start-" + "-".join(sorted(args.only)), rows, args)


if __name__ == "__main__":
    main()
