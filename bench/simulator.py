"""How fast is the simulator? By time alone, a thousand workers for a thousand steps, and ten thousand; and 64 that train.

    python bench/simulator.py [--quick] [--json]

Each case runs in a process of its own, one after the other, for its memory to be its own. Time is the process's CPU time:
one core's, whatever else the machine does. Links are of 1 Gbit/s and 100 us, steps of 50 ms vary by 20% (lognormal),
costs are those of ``taut.simulator.models.costs``, the model has a million parameters.
"""

from __future__ import annotations

import json
import os
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
# 64 workers that really train, ten passes over the digits: strategy, topology, bar in seconds
TRAINED = {"async, 64 that train": ("async", "", 120.0), "dpsgd, torus, 64 that train": ("dpsgd", "torus", 120.0)}
MEMORY_MB = 2048.0


def train(name: str, quick: bool) -> dict[str, float]:
    """In this process: 64 workers that really train, on one core."""
    from taut.simulator.models.links import Link, Links
    from taut.simulator.models.speeds import Speeds
    from taut.simulator.presets import PRESETS
    from taut.simulator.scenario import Scenario
    from taut.simulator.script.run import simulate_script

    strategy, topology, _ = TRAINED[name]
    began_s = time.process_time()
    done = simulate_script(
        Scenario(
            64,
            strategy,
            topology,
            script=PRESETS["digits"].script,
            epochs=1 if quick else 10,
            links=Links(Link(1e9, 100e-6)),
            speeds=Speeds(0.002, "lognormal:0.2"),
        )
    )
    return measured(began_s, done.wall_s, done.counted["events"])


def measured(began_s: float, virtual_s: float, events: float) -> dict[str, float]:
    return {
        "cpu_s": time.process_time() - began_s,
        "virtual_s": virtual_s,
        "events": float(events),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def simulate(name: str, quick: bool) -> dict[str, float]:
    """In this process: what it took."""
    from taut.simulator.models.links import Link, Links
    from taut.simulator.models.speeds import Speeds
    from taut.simulator.scenario import Scenario
    from taut.simulator.timing.simulation import simulate_timing

    strategy, topology, workers, steps, _ = CASES[name]
    steps = max(2, steps // 50) if quick else steps
    links, speeds = Links(Link(1e9, 100e-6)), Speeds(0.05, "lognormal:0.2")
    began_s = time.process_time()
    done = simulate_timing(Scenario(workers, strategy, topology, steps=steps, links=links, speeds=speeds))
    return measured(began_s, done.wall_s, done.counted["events"])


def main() -> None:
    parser = arguments("How fast and how large the simulator is.")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--case", default="", help=argparse_hidden())
    args = parser.parse_args()
    if args.case:
        print(json.dumps((train if args.case in TRAINED else simulate)(args.case, args.quick)))
        return
    rows: list[Row] = []
    bars = {name: case[-1] for name, case in [*CASES.items(), *TRAINED.items()] if args.only in name}
    for name, bar in bars.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--case", name, *(["--quick"] if args.quick else [])]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        made = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        found = json.loads(made.stdout)
        if name in CASES:
            steps = max(2, CASES[name][3] // 50) if args.quick else CASES[name][3]
            what = f"{name}: {CASES[name][2]} workers x {steps} steps"
        else:
            what = f"{name}: {1 if args.quick else 10} passes over the digits"
        rows.append(row(what, found["cpu_s"], "s of CPU", at_most=bar))  # type: ignore[arg-type]
        rows.append(row(f"{name}: memory", found["memory_mb"], "MB", at_most=MEMORY_MB if name in CASES else None))
        rows.append(row(f"{name}: events per second", found["events"] / found["cpu_s"], "1/s"))
    report("simulator", rows, args)


def argparse_hidden() -> str:
    import argparse

    return argparse.SUPPRESS


if __name__ == "__main__":
    main()
