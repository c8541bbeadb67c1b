"""One worker of three is 4 times slower, under ``sync``: what does ``batches(global_batch=...)`` make of it?

Three real workers on this machine, MNIST, an outer loop over passes. A sample takes 1 ms, and 4 ms at the slow worker:
steps are padded by sleeping, so that the machine's cores are not what is measured. Beside it the same script with three
equal workers, and a fixed batch for every worker with equal and unequal ones. What is reached of the sum of the workers'
speeds is compared with what equal workers reach of theirs. Samples per second are of the whole loop: the first steps, in
which speeds are not known yet, and the short last rounds are in it. The accuracy may be below that of equal workers by as
much as seeds differ, in the case where they differ most. A fixed batch makes its short last rounds at the full rate.

``--virtual`` trains the same in virtual time (``taut simulate``), where nothing depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from processes import taut_run
from report import Row, arguments, report, row

SHARED = Path(__file__).parents[2] / "shared"
WORKERS, STRAGGLER, BATCH, SAMPLE_S = 3, 4.0, 64, 0.001
CASES: dict[str, list[str]] = {
    "equal workers, batch_size=64": ["--batch-size", str(BATCH)],
    "equal workers, global_batch=192": ["--global-batch", str(WORKERS * BATCH)],
    "one 4 times slower, batch_size=64": ["--batch-size", str(BATCH), "--straggler", str(STRAGGLER)],
    "one 4 times slower, global_batch=192": ["--global-batch", str(WORKERS * BATCH), "--straggler", str(STRAGGLER)],
}
EQUAL, EQUAL_SHARES, FIXED, SHARES = CASES


@dataclass(frozen=True)
class Found:
    """What one run came to. ``slow_batch``: the median of the last worker's; ``apart``: the replicas' distance."""

    samples_per_s: float
    accuracy: float
    slow_batch: float
    apart: float


def one_run(case: str, seed: int, args: argparse.Namespace, folder: Path) -> Found:
    job = ["--data", str((args.data / "mnist").resolve()), "--seed", str(seed), *CASES[case]]
    job += ["--samples", "6000" if args.quick else "12000"]
    out = folder / f"{list(CASES).index(case)}-{seed}"
    found = in_virtual_time(case, seed, job, out) if args.virtual else in_processes(seed, job, out)
    sys.stderr.write(f"{case}, seed {seed}: {found.samples_per_s:.0f} samples/s, accuracy {found.accuracy:.2f}\n")
    return found


def in_processes(seed: int, job: list[str], out: Path) -> Found:
    options, job = ["--strategy", "sync", "--seed", str(seed)], [*job, "--sample", str(SAMPLE_S)]
    made = taut_run("global_batch.py", job, out, workers=WORKERS, options=options)
    slow_batch = statistics.median(made.records[-1]["sizes"])
    outcome = made.outcome
    accuracy, apart = float(outcome["validation"]["chosen"]), float(outcome["consensus_distance"])
    return Found(made.samples_per_s, accuracy, slow_batch, apart)


def in_virtual_time(case: str, seed: int, job: list[str], out: Path) -> Found:
    from taut.simulator.models.links import Link, Links
    from taut.simulator.models.speeds import Speeds
    from taut.simulator.scenario import Scenario
    from taut.simulator.script.run import simulate_script

    out.mkdir()
    speeds = Speeds(step_s=BATCH * SAMPLE_S, stragglers={WORKERS - 1: STRAGGLER} if case in (FIXED, SHARES) else {})
    script, args = str(Path(__file__).parent / "jobs" / "global_batch.py"), (*job, "--sample", "0", "--out", str(out))
    links = Links(Link(1e9, 1e-4))
    made = simulate_script(Scenario(WORKERS, "sync", seed=seed, script=script, args=args, speeds=speeds, links=links))
    assert not made.error and made.validation is not None and made.validation.chosen is not None, made.error
    sizes = json.loads((out / f"{WORKERS - 1}.json").read_text())["sizes"]
    samples = sum(each.samples for each in made.workers.values())
    return Found(samples / made.wall_s, made.validation.chosen, statistics.median(sizes), made.consensus)


def rows_of(found: dict[str, list[Found]]) -> list[Row]:
    speed = {case: statistics.median(one.samples_per_s for one in made) for case, made in found.items()}
    accuracy = {case: statistics.mean(one.accuracy for one in made) for case, made in found.items()}
    rows = []
    for case in found:
        rows += [row(f"{case}: speed", speed[case], "samples/s"), row(f"{case}: accuracy", accuracy[case], "%")]
    reached = speed[SHARES] * SAMPLE_S / (WORKERS - 1 + 1 / STRAGGLER)
    equal = speed[EQUAL] * SAMPLE_S / WORKERS
    spread = round(max(_spread(found[case]) for case in (EQUAL, EQUAL_SHARES, SHARES)) or 0.5, 2)
    below = {case: accuracy[case] - accuracy[SHARES] for case in (EQUAL, EQUAL_SHARES)}
    return [
        *rows,
        row("the slow worker's batch, of 192", found[SHARES][0].slow_batch, "samples"),
        row("equal workers: speed, of the sum of their speeds", equal, "x"),
        row("global_batch: speed, of the sum of their speeds", reached, "x"),
        row("global_batch against equal workers", reached / equal, "x", at_least=0.85),
        row("speed, of that of a fixed batch", speed[SHARES] / speed[FIXED], "x", at_least=2.0),
        *(row(f"accuracy below {case}", points, "points", at_most=spread) for case, points in below.items()),
        row("replicas apart", max(one.apart for one in found[SHARES]), "", at_most=0.0),
    ]


def _spread(made: list[Found]) -> float:
    """How far the accuracies of one case's seeds are apart."""
    seeds = [one.accuracy for one in made]
    return max(seeds) - min(seeds)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, default=SHARED / "data", help="holds mnist/")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--virtual", action="store_true", help="in virtual time")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taut-global-batch-") as folder:
        found = {
            case: [one_run(case, seed, args, Path(folder)) for seed in range(1 if args.quick else args.seeds)]
            for case in CASES
        }
        report("global_batch-virtual" if args.virtual else "global_batch", rows_of(found), args)


if __name__ == "__main__":
    main()
