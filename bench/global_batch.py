"""One worker of three is 4 times slower, under ``sync``: what does ``batches(global_batch=...)`` make of it?

Three real workers on this machine, MNIST, an outer loop over passes. A sample takes 1 ms, and 4 ms at the slow worker:
steps are padded by sleeping, so that the machine's cores are not what is measured. Beside it the same with a fixed batch
for every worker, and a fixed batch with three equal workers. What is reached of the sum of the workers' speeds is
compared with what equal workers reach of theirs. Samples per second are of the whole loop: the first steps, in which
speeds are not known yet, and the short last rounds are in it. Accuracy may be below that of equal workers by what their
seeds differ.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from processes import Made, taut_run
from report import Row, arguments, report, row

SHARED = Path(__file__).parents[2] / "shared"
WORKERS, STRAGGLER, BATCH, SAMPLE_S = 3, 4.0, 64, 0.001
CASES: dict[str, list[str]] = {
    "equal workers, batch_size=64": ["--batch-size", str(BATCH)],
    "one 4 times slower, batch_size=64": ["--batch-size", str(BATCH), "--straggler", str(STRAGGLER)],
    "one 4 times slower, global_batch=192": ["--global-batch", str(WORKERS * BATCH), "--straggler", str(STRAGGLER)],
}
EQUAL, FIXED, SHARES = CASES


def one_run(case: str, seed: int, args: argparse.Namespace, folder: Path) -> Made:
    job = ["--data", str((args.data / "mnist").resolve()), "--seed", str(seed), "--sample", str(SAMPLE_S), *CASES[case]]
    job += ["--samples", "6000" if args.quick else "12000"]
    options = ["--strategy", "sync", "--seed", str(seed)]
    made = taut_run(
        "global_batch.py", job, folder / f"{list(CASES).index(case)}-{seed}", workers=WORKERS, options=options
    )
    accuracy = made.outcome["validation"]["chosen"]
    sys.stderr.write(f"{case}, seed {seed}: {made.samples_per_s:.0f} samples/s, accuracy {accuracy:.2f}\n")
    return made


def rows_of(found: dict[str, list[Made]]) -> list[Row]:
    speed = {case: statistics.median(one.samples_per_s for one in made) for case, made in found.items()}
    accuracy = {
        case: statistics.mean(float(one.outcome["validation"]["chosen"]) for one in made) for case, made in found.items()
    }
    rows = []
    for case in found:
        rows += [row(f"{case}: speed", speed[case], "samples/s"), row(f"{case}: accuracy", accuracy[case], "%")]
    reached = speed[SHARES] * SAMPLE_S / (WORKERS - 1 + 1 / STRAGGLER)
    equal = speed[EQUAL] * SAMPLE_S / WORKERS
    seeds = [float(one.outcome["validation"]["chosen"]) for one in found[EQUAL]]
    spread = max(seeds) - min(seeds) if len(seeds) > 1 else 0.5
    slowest = [statistics.median(record["sizes"]) for record in found[SHARES][0].records]
    return [
        *rows,
        row("the slow worker's batch, of 192", slowest[-1], "samples"),
        row("equal workers: speed, of the sum of their speeds", equal, "x"),
        row("global_batch: speed, of the sum of their speeds", reached, "x"),
        row("global_batch against equal workers", reached / equal, "x", at_least=0.85),
        row("speed, of that of a fixed batch", speed[SHARES] / speed[FIXED], "x", at_least=2.0),
        row("accuracy below equal workers", accuracy[EQUAL] - accuracy[SHARES], "points", at_most=round(spread, 2)),
        row("replicas apart", max(float(one.outcome["consensus_distance"]) for one in found[SHARES]), "", at_most=0.0),
    ]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, default=SHARED / "data", help="holds mnist/")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="taut-global-batch-") as folder:
        found = {
            case: [one_run(case, seed, args, Path(folder)) for seed in range(1 if args.quick else args.seeds)]
            for case in CASES
        }
        report("global_batch", rows_of(found), args)


if __name__ == "__main__":
    main()
