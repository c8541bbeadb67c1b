"""Does any input break a decoder? Ten million mutated payloads and frames, on all cores.

A payload is absorbed (and some are merged): it is taken in whole or refused with nothing changed, and memory stays
bounded. A frame is decoded as a message of some family. Anything but ``MalformedMessage`` is a failure, printed with the
seed and the command that shows it again. A million lies of one worker are told to the others, under every strategy
(``taut.testing.peer_fuzz``): nobody ends because of one.
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

PORTION = 50_000
PAYLOADS, FRAMES = 5_000_000, 5_000_000
PEERS = 1_000_000
PORTIONS = {"payloads": 1 << 20, "frames": 1 << 21, "peers": 1 << 22}  # where the seeds of each begin


def portion(what: str, seed: int, count: int) -> tuple[int, int, str]:
    """Refused, taken, and what went wrong."""
    try:
        if what == "payloads":
            from taut.testing import fuzz_payloads
            from taut.testing.payload_samples import SIZE, payload_samples

            fuzzed = fuzz_payloads(payload_samples(), SIZE, count, seed)
            return fuzzed.refused, fuzzed.taken, ""
        if what == "peers":
            from taut.testing.peer_fuzz import fuzz_peers

            lies = fuzz_peers(count, seed)
            return lies.refused, lies.taken, ""
        from taut.testing.frame_fuzz import fuzz_frames
        from taut.testing.message_samples import message_samples

        decoded = fuzz_frames(message_samples(), count, seed)
        return decoded.refused, decoded.taken, ""
    except Exception:
        return 0, 0, traceback.format_exc()


def fuzz(what: str, total: int, jobs: int) -> list[Row]:
    begun_s = time.monotonic()
    refused = taken = 0
    failures: list[str] = []
    with ProcessPoolExecutor(jobs) as pool:
        seeds = range(PORTIONS[what], PORTIONS[what] + -(-total // PORTION))
        under_way = {pool.submit(portion, what, seed, min(PORTION, total)): seed for seed in seeds}
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
            sys.exit(f"--replay {args.replay}: expected payloads:SEED, frames:SEED or peers:SEED, as a failure prints it")
        *_, failure = portion(what, int(seed), PORTION)
        sys.exit(failure or 0)
    share = 50 if args.quick else 1
    rows = [
        one
        for what, total in (("payloads", PAYLOADS), ("frames", FRAMES), ("peers", PEERS))
        for one in fuzz(what, total // share, args.jobs)
    ]
    report("fuzz", rows, args)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.path.insert(0, str(Path(__file__).parent))
    parser = arguments(__doc__ or "")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--replay", help="payloads:SEED, frames:SEED or peers:SEED, of a failure")
    main(parser.parse_args())
