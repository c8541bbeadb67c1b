"""What do encoding and decoding cost, beside the cheapest thing one can do with a vector?

25 million float32, 0.1% of them sent, one core and all. Encoding is compared with ``numpy.add(r, g, out=r)`` on
vectors of the same size, in the same run and in turn with it; medians. Decoding is ``absorb``: validation and
adding to w and b. Every repetition starts from the same strays, out of cache.

The addition reads two vectors and writes one. tether must read two (w, b), threshold read three (w, b, r) and write
two, so what the machine needs for just that is measured beside it, in the same repetitions: the reads alone, and
threshold's with the two writes.

Then every codec of the registry as a multiple of the same addition, on one thread and on all, beside the same codec on a
torch tensor: torch operations on one thread, as for any device without kernels of its own. The addition is always on one.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from report import Grid, Row, arguments, report, row
from taut.codecs import REGISTRY, Codec, State, Tether, Threshold, merge, parallel, parse, sketch
from taut.codecs.wire.payload import header

SIZE, DENSITY, WORKERS = 25_000_000, 0.001, 4
LIMIT = 2.0**-7
BARS = {"tether": 0.95, "threshold": 1.5}  # on one core
CORES = os.cpu_count() or 1
SETTINGS = {  # where the default is not 0.1%, or has a warm-up
    "tether": f"tether:slack=2^{int(math.log2(LIMIT))}",
    "threshold": f"threshold:tau=2^{int(math.log2(LIMIT / WORKERS))}",
    "topk": "topk:density=0.001",
    "dgc": "dgc:density=0.001,warmup=0",
    "randomk": "randomk:density=0.001",
}
TAIL = 3.2905  # a normal variable is beyond this many standard deviations with probability 0.001


class Subject:
    """A codec with vectors that can be put back to where they were before a scan."""

    def __init__(self, codec: Codec, size: int, tensor: bool = False) -> None:
        rng = np.random.default_rng(0)
        self.codec, self.size = codec, size
        self.base = rng.standard_normal(size, np.float32)
        self.moved = rng.standard_normal(size, np.float32)
        self.moved *= np.float32(LIMIT / TAIL)
        self.moved += self.base
        self.w: Any = self.base.copy()
        if tensor:
            import torch

            torch.set_num_threads(1)
            self.w = torch.from_numpy(self.w)
        self.state: State = codec.start(self.w, WORKERS, shapes=matrices(size))
        self.payload = b""

    def reset(self) -> None:
        kernels = self.state.kernels
        kernels.load(self.w, self.moved)
        kernels.load(self.state.b, self.base)
        if self.state.r is not None:
            self.state.r *= 0.0

    def encode(self) -> None:
        self.payload = self.codec.emit(self.state, 0, self.size) or b""


def matrices(size: int) -> list[tuple[int, ...]]:
    """As a model would have them: of a thousand columns, and what is left."""
    return [(size // 1000, 1000), *([(size % 1000,)] if size % 1000 else [])] if size >= 1000 else [(size,)]


def timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@numba.njit(nogil=True, error_model="numpy")
def read_two(w, b):  # type: ignore[no-untyped-def]
    """What tether must read, and nothing else, as whole numbers."""
    found = np.uint32(0)
    for i in range(w.size):
        found |= w[i] | b[i]
    return found


@numba.njit(nogil=True, error_model="numpy")
def read_three(w, b, r):  # type: ignore[no-untyped-def]
    """What threshold must read, and nothing else, as whole numbers."""
    found = np.uint32(0)
    for i in range(w.size):
        found |= w[i] | b[i] | r[i]
    return found


@numba.njit(nogil=True, error_model="numpy")
def read_three_write_two(w, b, r):  # type: ignore[no-untyped-def]
    """What threshold must read and write where nothing is sent."""
    for i in range(w.size):
        r[i] += w[i] - b[i]
        w[i] = b[i]


def take_times(tether: Subject, threshold: Subject, repetitions: int) -> dict[str, list[float]]:
    """Seconds of everything that is timed, in turn, so that what slows the machine slows all of it."""
    r, g = np.ones(tether.size, np.float32), np.full(tether.size, 1e-3, np.float32)
    encodes = [
        (f"{subject.codec.name}, {threads} threads" if threads > 1 else subject.codec.name, subject, threads)
        for threads in dict.fromkeys((1, CORES))
        for subject in (tether, threshold)
    ]
    vectors = threshold.w, threshold.state.b, threshold.state.r
    bits = [vector.view(np.uint32) for vector in vectors]
    times: dict[str, list[float]] = {}
    for repetition in range(repetitions + 1):  # the first is not counted: kernels may be compiled in it
        taken = {"add": timed(lambda: np.add(r, g, out=r))}
        for name, subject, threads in encodes:
            subject.reset()
            parallel.set_threads(threads)
            taken[name] = timed(subject.encode)
        taken["decode"] = timed(lambda: tether.codec.absorb(tether.state, tether.payload))
        tether.reset()
        taken["two reads"] = timed(lambda: read_two(*(vector.view(np.uint32) for vector in (tether.w, tether.state.b))))
        threshold.reset()
        taken["reads"] = timed(lambda: read_three(*bits))
        threshold.reset()
        taken["reads, writes"] = timed(lambda: read_three_write_two(*vectors))
        if repetition:
            for name, seconds in taken.items():
                times.setdefault(name, []).append(seconds)
    parallel.set_threads(1)
    return times


def measure(size: int, repetitions: int) -> list[Row]:
    tether, threshold = Subject(Tether(slack=LIMIT), size), Subject(Threshold(tau=LIMIT / WORKERS), size)
    times = take_times(tether, threshold, repetitions)
    middle = {name: statistics.median(values) for name, values in times.items()}
    copies = {one.codec.name: one.state.held_nbytes / one.w.nbytes for one in (tether, threshold)}
    halves = [tether.payload, tether.payload]
    encodes = [name for name in times if name.startswith(("tether", "threshold"))]
    return [
        row("words in a payload", header(tether.payload).count, "words"),
        row("numpy add", middle["add"] * 1e3, "ms"),
        *(row(f"encode: {name}", middle[name] * 1e3, "ms") for name in encodes),
        *(row(f"encode / numpy add: {name}", over(times, name), "x", at_most=BARS.get(name)) for name in encodes),
        row("the machine's limit: tether's two reads alone / numpy add", over(times, "two reads"), "x"),
        row("encode / those reads: tether", over(times, "tether", "two reads"), "x"),
        row("the machine's limit: threshold's three reads alone / numpy add", over(times, "reads"), "x"),
        row("the machine's limit: its reads and its two writes / numpy add", over(times, "reads, writes"), "x"),
        row("encode / those reads and writes: threshold", over(times, "threshold", "reads, writes"), "x"),
        row("decode and apply", middle["decode"] * 1e3, "ms", at_most=1.0),
        row("tether memory", copies["tether"], "copies", at_most=1.5),
        row("threshold memory", copies["threshold"], "copies", at_most=2.5),
        row("merge two payloads", timed(lambda: merge(halves)) * 1e3, "ms"),
        row("sketch", min(timed(lambda: sketch(tether.w)) for _ in range(3)) * 1e3, "ms"),
    ]


def over(times: dict[str, list[float]], name: str, other: str = "add") -> float:
    """The middle of what one took over what the other took in the same repetition."""
    return statistics.median(a / b for a, b in zip(times[name], times[other], strict=True))


def table(size: int, repetitions: int) -> Grid:
    """Every codec: encoding and decoding over the addition, on one thread, on all, and in torch operations on one."""
    lines: dict[str, list[float | None]] = {}
    for name in REGISTRY:
        subject = Subject(parse(SETTINGS.get(name, name)), size)
        alone = ratios(subject, repetitions)
        bits = 8 * len(subject.payload) / size
        parallel.set_threads(CORES)
        many = ratios(subject, repetitions) if CORES > 1 else (None, None)
        parallel.set_threads(1)
        del subject  # it holds six vectors
        plain = ratios(Subject(parse(SETTINGS.get(name, name)), size, tensor=True), 2)
        lines[name] = [bits, *(times[step] for step in (0, 1) for times in (alone, many, plain))]
    ways = ("", f", {CORES} threads", ", torch operations")
    columns = [f"{step} / numpy add{way}" for step in ("encode", "decode") for way in ways]
    return Grid(f"codec ({size:.3g} elements)", ("bits per element", *columns), lines)


def ratios(subject: Subject, repetitions: int) -> tuple[float, float]:
    """Encoding and decoding over the addition that went before."""
    r, g = np.ones(subject.size, np.float32), np.full(subject.size, 1e-3, np.float32)
    found: list[tuple[float, float]] = []
    for _ in range(1 + repetitions):  # the first is not counted
        add = timed(lambda: np.add(r, g, out=r))
        subject.reset()
        encode = timed(subject.encode)
        found.append((encode / add, timed(lambda: subject.codec.absorb(subject.state, subject.payload)) / add))
    encodes, decodes = zip(*found[1:], strict=True)
    return statistics.median(encodes), statistics.median(decodes)


def main(args: argparse.Namespace) -> None:
    rows = measure(SIZE, 7 if args.quick else 25)
    report("codec", rows, args, table(SIZE // (25 if args.quick else 1), 3 if args.quick else 5))


if __name__ == "__main__":
    main(arguments(__doc__ or "").parse_args())
