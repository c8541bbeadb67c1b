"""How fast is the simulator, where only time is simulated? A thousand workers for a thousand steps, and ten thousand.

    python bench/simulator.py [--quick] [--json]

Each case runs in a process of its own, one after the other, for its memory to be its own. Time is the process's CPU time:
one core's, whatever else the machine does. Links are of 1 Gbit/s and 100 us, steps of 50 ms vary by 20% (lognormal),
costs are those of ``taut.simulator.costs``, the model has a million parameters.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

from report import Row, arguments, report, row

CASES = {  # strategy, topology, workers, steps, bar in seconds
    "dpsgd, torus": ("dpsgd", "torus", 1000, 1000, 60.0),
    "gossip, torus": ("gossip", "torus", 1000, 1000, 60.0),
    "sync, ring": ("sync", "", 1000, 1000, 60.0),
    "async relayed, tree": ("async", "tree", 1000, 100, None),
    "averaging:every=8, ring": ("averaging:every=8", "", 1000, 1000, 60.0),
    "dpsgd, torus, ten thousand": ("dpsgd", "torus", 10_000, 20, None),
    "async, complete": ("async", "", 64, 20, None),
}
MEMORY_MB = 2048.0


def simulate(name: str, quick: bool) -> dict[str, float]:
    """In this process: what it took."""
    from taut.simulator.network import Link, Links
    from taut.simulator.scenario import Scenario
    from taut.simulator.speeds import Speeds
    from taut.simulator.timing import simulate_timing

    strategy, topology, workers, steps, _ = CASES[name]
    steps = max(2, steps // 50) if quick else steps
    links, speeds = Links(Link(1e9, 100e-6)), Speeds(0.05, "lognormal:0.2")
    began_s = time.process_time()
    done = simulate_timing(Scenario(workers, strategy, topology, steps=steps, links=links, speeds=speeds))
    return {
        "cpu_s": time.process_time() - began_s,
        "virtual_s": done.wall_s,
        "events": float(done.counted["events"]),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = arguments("How fast and how large the simulator is.")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--case", default="", help=argparse_hidden())
    args = parser.parse_args()
    if args.case:
        print(json.dumps(simulate(args.case, args.quick)))
        return
    rows: list[Row] = []
    for name, (_, _, workers, steps, bar) in CASES.items():
        if args.only not in name:
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--case", name, *(["--quick"] if args.quick else [])]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        what = f"{name}: {workers} workers x {max(2, steps // 50) if args.quick else steps} steps"
        rows.append(row(what, found["cpu_s"], "s of CPU", at_most=bar))
        rows.append(row(f"{name}: memory", found["memory_mb"], "MB", at_most=MEMORY_MB))
        rows.append(row(f"{name}: events per second", found["events"] / found["cpu_s"], "1/s"))
    report("simulator", rows, args)


def argparse_hidden() -> str:
    import argparse

    return argparse.SUPPRESS


if __name__ == "__main__":
    main()
