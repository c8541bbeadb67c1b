"""What do encoding and decoding cost, beside the cheapest thing one can do with a vector?

25 million float32, 0.1% of them sent, one core. Encoding is compared with ``numpy.add(r, g, out=r)`` on
vectors of the same size, in the same run and in turn with it; medians. Decoding is ``absorb``: validation and
adding 25,000 words to w and b. Every repetition starts from the same strays, out of cache.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from report import Row, arguments, report, row
from taut.codecs import Codec, State, Tether, Threshold, merge, sketch

SIZE, DENSITY, WORKERS = 25_000_000, 0.001, 4
LIMIT = 2.0**-7
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


def measure(size: int, repetitions: int) -> list[Row]:
    tether = Subject(Tether(slack=LIMIT), size)
    threshold = Subject(Threshold(tau=LIMIT / WORKERS), size)
    r, g = np.ones(size, np.float32), np.full(size, 1e-3, np.float32)
    times: dict[str, list[float]] = {name: [] for name in ("add", "tether", "threshold", "decode")}
    for repetition in range(repetitions + 1):  # the first is not counted
        taken = {"add": timed(lambda: np.add(r, g, out=r))}
        for name, subject in (("tether", tether), ("threshold", threshold)):
            subject.reset()
            taken[name] = timed(subject.encode)
        taken["decode"] = timed(lambda: tether.codec.absorb(tether.state, tether.payload))
        if repetition:
            for name, seconds in taken.items():
                times[name].append(seconds)
    middle = {name: statistics.median(values) for name, values in times.items()}
    # paired with the addition of the same repetition, so that what slows the machine slows both
    ratio = {
        name: statistics.median(a / b for a, b in zip(times[name], times["add"], strict=True))
        for name in ("tether", "threshold")
    }
    copies = {one.codec.name: one.state.held_nbytes / one.w.nbytes for one in (tether, threshold)}
    halves = [tether.payload, tether.payload]
    return [
        row("words in a payload", (len(tether.payload) - 28) / 4, "words"),
        row("numpy add", middle["add"] * 1e3, "ms"),
        row("tether encode", middle["tether"] * 1e3, "ms"),
        row("threshold encode", middle["threshold"] * 1e3, "ms"),
        row("tether encode / numpy add", ratio["tether"], "x", at_most=1.2),
        row("threshold encode / numpy add", ratio["threshold"], "x", at_most=1.8),
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
