"""What does a newcomer see in the first hour? ``taut demo`` with an empty kernel cache and once more, and what it shows;
and how long ``taut run`` takes to the first step, with an empty kernel cache and with a full one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from processes import LIMIT_S, TAUT
from report import Row, arguments, report, row
from startup import first_steps

SLOWER_S, LASTS_S, FASTER = 6.0, 70.0, 1.2


def demo(folder: Path, seconds: float | None) -> tuple[float, dict[str, Any]]:
    """Run the demo; return how long it took, and what it printed."""
    length = [] if seconds is None else ["--seconds", f"{seconds:g}"]
    begun = time.monotonic()
    done = subprocess.run(
        [str(TAUT), "demo", "--json", "--runs-dir", str(folder / "runs"), *length],
        check=True,
        timeout=LIMIT_S,
        stdout=subprocess.PIPE,
    )
    taken_s = time.monotonic() - begun
    sys.stderr.write(f"demo: {taken_s:.1f} s\n")
    found: dict[str, Any] = json.loads(done.stdout)
    return taken_s, found


def kernels_in(folder: Path) -> None:
    """Let the processes that are started from now on keep compiled kernels in ``folder``."""
    os.environ["NUMBA_CACHE_DIR"] = str(folder)


def seen(record: dict[str, Any], faster: float | None) -> list[Row]:
    """Return what the demo shows of its trainings; for one that never got to the target, how long it lasted.
    ``faster``: the bar of the last strategy, against the others."""
    alone, sync, other = record["trainings"].values()
    took = {each["name"]: each["time_to_target_s"] or record["seconds"] for each in (alone, sync, other)}
    name, target = other["name"], f"to a loss of {record['target_loss']:.2f}"
    rows = [row(f"{each} {target}", seconds, "s") for each, seconds in took.items()]
    rows += [row(f"{each['name']}: samples/s", each["samples_per_s"], "1/s") for each in (alone, sync, other)]
    rows += [row(f"{each['name']}: sent", each["bytes_sent"] / 1e6, "MB") for each in (sync, other)]
    rows += [row(f"{each['name']}: longest pause after the kill", each["pause_s"], "s") for each in (sync, other)]
    return [
        *rows,
        row(f"{alone['name']} / {name}, {target}", took[alone["name"]] / took[name], "x", at_least=faster),
        row(f"sync / {name}, {target}", took["sync"] / took[name], "x", at_least=faster),
        row("replicas equal", float(bool(sync["identical"] and other["identical"])), "", at_least=1.0),
    ]


def main(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="taut-newcomer-") as name:
        folder, seconds = Path(name), 6.0 if args.quick else None
        kernels_in(folder / "demo")
        first_s, _ = demo(folder, seconds)
        second_s, record = demo(folder, seconds)
        kernels_in(folder / "run")
        cold_s, warm_s = first_steps(), first_steps()
    rows = [
        row("first demo, empty kernel cache", first_s, "s"),
        row("second demo", second_s, "s", at_most=LASTS_S),
        row("first demo - second demo", first_s - second_s, "s", at_most=SLOWER_S),
        row("first step of taut run, empty kernel cache", cold_s, "s"),
        row("first step of taut run", warm_s, "s"),
        *seen(record, None if args.quick else FASTER),  # so short a training is mostly its beginning
    ]
    report("newcomer", rows, args)


if __name__ == "__main__":
    main(arguments(__doc__ or "").parse_args())
