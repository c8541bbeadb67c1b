"""Does any input break a decoder, or a handler of the supervisor? On all cores.

- Ten million mutated payloads and frames. A payload is absorbed (and some are merged): it is taken in whole or refused
  with nothing changed, and memory stays bounded. A frame is decoded as a message of some family. Anything but
  ``MalformedMessage`` is a failure.
- A million random valid messages of workers to supervisors, in every state of a run. Anything that a handler raises is a
  failure.
- A million lies of one worker to the others, under every strategy: nobody ends because of one.

A failure is printed with the seed and the command that shows it again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from report import Row, arguments, report, row

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "shared"))  # the fuzzers, which the tests use too

PORTIONS = {"payloads": 50_000, "frames": 50_000, "handlers": 10_000, "peers": 10_000}  # inputs of one seed
TOTALS = {"payloads": 5_000_000, "frames": 5_000_000, "handlers": 1_000_000, "peers": 1_000_000}
SEEDS = {"payloads": 1 << 20, "frames": 1 << 21, "handlers": 1 << 22, "peers": 1 << 23}  # where the seeds of each begin


def portion(what: str, seed: int, count: int) -> tuple[int, int, str]:
    """Refused, taken, and what went wrong."""
    try:
        if what == "payloads":
            from fuzzers.payload_samples import SIZE, payload_samples

            from taut.testing import fuzz_payloads

            fuzzed = fuzz_payloads(payload_samples(), SIZE, count, seed)
            return fuzzed.refused, fuzzed.taken, ""
        if what == "handlers":
            from fuzzers.handler_fuzz import fuzz_handlers

            return 0, fuzz_handlers(count, seed).kinds.total(), ""
        if what == "peers":
            from fuzzers.peer_fuzz import fuzz_peers

            lies = fuzz_peers(count, seed)
            return lies.refused, lies.taken, ""
        from fuzzers.frame_fuzz import fuzz_frames
        from fuzzers.message_samples import message_samples

        decoded = fuzz_frames(message_samples(), count, seed)
        return decoded.refused, decoded.taken, ""
    except Exception:
        return 0, 0, traceback.format_exc()


def fuzz(what: str, total: int, jobs: int) -> list[Row]:
    begun_s = time.monotonic()
    refused = taken = 0
    failures: list[str] = []
    with ProcessPoolExecutor(jobs) as pool:
        seeds = range(SEEDS[what], SEEDS[what] + -(-total // PORTIONS[what]))
        under_way = {pool.submit(portion, what, seed, min(PORTIONS[what], total)): seed for seed in seeds}
        for done in as_completed(under_way):
            some_refused, some_taken, failure = done.result()
            refused, taken = refused + some_refused, taken + some_taken
            if failure:
                failures.append(
                    f"seed {under_way[done]}: python bench/fuzz.py --replay {what}:{under_way[done]}\n{failure}"
                )
            rate = (refused + taken) / (time.monotonic() - begun_s)
            sys.stderr.write(f"\r{what}: {refused + taken:,} inputs, {rate:,.0f}/s, {len(failures)} failures ")
    sys.stderr.write("\n" + "\n".join(failures[:3]))
    return [
        row(f"{what}: inputs", refused + taken, "", at_least=total),
        row(f"{what}: refused", refused, ""),
        row(f"{what}: valid all the same, and taken", taken, ""),
        row(f"{what}: failures", len(failures), "portions", at_most=0),
        row(f"{what}: rate", (refused + taken) / (time.monotonic() - begun_s), "/s"),
    ]


def main(args: argparse.Namespace) -> None:
    if args.replay:
        what, _, seed = args.replay.partition(":")
        if what not in PORTIONS or not seed.isdigit():
            sys.exit(f"--replay {args.replay}: expected {', '.join(PORTIONS)} and :SEED, as a failure prints it")
        *_, failure = portion(what, int(seed), PORTIONS[what])
        sys.exit(failure or 0)
    share = 50 if args.quick else 1
    rows = [one for what, total in TOTALS.items() for one in fuzz(what, total // share, args.jobs)]
    report("fuzz", rows, args)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = arguments(__doc__ or "")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--replay", help="payloads:SEED, frames:SEED, handlers:SEED or peers:SEED, of a failure")
    main(parser.parse_args())
