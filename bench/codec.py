"""What do encoding and decoding cost, beside the cheapest thing one can do with a vector?

25 million float32, 0.1% of them sent, one core and all. Encoding is compared with ``numpy.add(r, g, out=r)`` on
vectors of the same size, in the same run and in turn with it; medians. Decoding is ``absorb``: validation and
adding 25,000 words to w and b. Every repetition starts from the same strays, out of cache.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np

from report import Row, arguments, report, row
from taut.codecs import Codec, State, Tether, Threshold, merge, parallel, sketch
from taut.codecs.payload import header

SIZE, DENSITY, WORKERS = 25_000_000, 0.001, 4
LIMIT = 2.0**-7
BARS = {"tether": 1.1, "threshold": 1.5}  # on one core; both are what must be read, at the speed of the addition
CORES = os.cpu_count() or 1
TAIL = 3.2905  # a normal variable is beyond this many standard deviations with probability 0.001


class Subject:
    """A codec with vectors that can be put back to where they were before a scan."""

    def __init__(self, codec: Codec, size: int) -> None:
        rng = np.random.default_rng(0)
        self.codec, self.size = codec, size
        self.base = rng.standard_normal(size, np.float32)
        self.moved = rng.standard_normal(size, np.float32)
        self.moved *= np.float32(LIMIT / TAIL)
        self.moved += self.base
        self.w = self.base.copy()
        self.state: State = codec.start(self.w, WORKERS)
        self.payload = b""

    def reset(self) -> None:
        np.copyto(self.w, self.moved)
        np.copyto(self.state.b, self.base)
        if self.state.r is not None:
            self.state.r.fill(0.0)

    def encode(self) -> None:
        self.payload = self.codec.emit(self.state, 0, self.size) or b""


def timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def take_times(tether: Subject, threshold: Subject, repetitions: int) -> dict[str, list[float]]:
    """Seconds of everything that is timed, in turn, so that what slows the machine slows all of it."""
    r, g = np.ones(tether.size, np.float32), np.full(tether.size, 1e-3, np.float32)
    encodes = [
        (f"{subject.codec.name}, {threads} threads" if threads > 1 else subject.codec.name, subject, threads)
        for threads in dict.fromkeys((1, CORES))
        for subject in (tether, threshold)
    ]
    times: dict[str, list[float]] = {}
    for repetition in range(repetitions + 1):  # the first is not counted
        taken = {"add": timed(lambda: np.add(r, g, out=r))}
        for name, subject, threads in encodes:
            subject.reset()
            parallel.set_threads(threads)
            taken[name] = timed(subject.encode)
        taken["decode"] = timed(lambda: tether.codec.absorb(tether.state, tether.payload))
        if repetition:
            for name, seconds in taken.items():
                times.setdefault(name, []).append(seconds)
    parallel.set_threads(1)
    return times


def measure(size: int, repetitions: int) -> list[Row]:
    tether, threshold = Subject(Tether(slack=LIMIT), size), Subject(Threshold(tau=LIMIT / WORKERS), size)
    times = take_times(tether, threshold, repetitions)
    middle = {name: statistics.median(values) for name, values in times.items()}
    ratio = {  # to the addition of the same repetition
        name: statistics.median(a / b for a, b in zip(values, times["add"], strict=True))
        for name, values in times.items()
    }
    copies = {one.codec.name: one.state.held_nbytes / one.w.nbytes for one in (tether, threshold)}
    halves = [tether.payload, tether.payload]
    encodes = [name for name in times if name not in ("add", "decode")]
    return [
        row("words in a payload", header(tether.payload).count, "words"),
        row("numpy add", middle["add"] * 1e3, "ms"),
        *(row(f"encode: {name}", middle[name] * 1e3, "ms") for name in encodes),
        *(row(f"encode / numpy add: {name}", ratio[name], "x", at_most=BARS.get(name)) for name in encodes),
        row("decode and apply", middle["decode"] * 1e3, "ms", at_most=1.0),
        row("tether memory", copies["tether"], "copies", at_most=1.5),
        row("threshold memory", copies["threshold"], "copies", at_most=2.5),
        row("merge two payloads", timed(lambda: merge(halves)) * 1e3, "ms"),
        row("sketch", min(timed(lambda: sketch(tether.w)) for _ in range(3)) * 1e3, "ms"),
    ]


def main(args: argparse.Namespace) -> None:
    report("codec", measure(SIZE, 7 if args.quick else 25), args)


if __name__ == "__main__":
    main(arguments(__doc__ or "").parse_args())
