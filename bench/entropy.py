"""How close to the entropy do coded words come, and how fast?

25 million elements, some of them sent: at random, at three densities, and in five layers of densities from 0.01% to
8%. The bits of a word are compared with the entropy of the gaps and one bit for the sign. The entropy is that of the
geometric distribution, which random indices have, and that of the histogram of the very gaps that were coded (which is
lower where they are few: it knows the sample). For layers it is that of all gaps together, which a code that follows
the layers may go below. Rates are of words of 4 bytes that go in (or come out), one core, medians; ``small``: a call
with 20 words, with all of Python's part in it.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from report import Row, arguments, report, row
from taut.codecs.wire import rice

SIZE = 25_000_000
DENSITIES = (0.001, 0.012, 0.05)
LAYERS = (0.0001, 0.001, 0.01, 0.03, 0.08)
SMALL, CALLS = 20, 2_000

U32 = npt.NDArray[np.uint32]


def drawn(densities: tuple[float, ...], seed: int) -> U32:
    """Words of ``SIZE`` elements in layers of equal size, each with its density."""
    rng = np.random.default_rng(seed)
    layer = SIZE // len(densities)
    found = [np.flatnonzero(rng.random(layer, np.float32) < density) for density in densities]
    indices = np.concatenate([places + number * layer for number, places in enumerate(found)]).astype(np.uint32)
    words: U32 = indices << 1 | rng.integers(0, 2, indices.size, np.uint32)
    return words


def geometric_bits(density: float) -> float:
    """Entropy of the gap between random indices, and a sign: (-p log2 p - (1-p) log2 (1-p)) / p + 1."""
    return -(density * math.log2(density) + (1 - density) * math.log2(1 - density)) / density + 1


def histogram_bits(words: U32) -> float:
    """Entropy of the gaps that are there, and a sign."""
    gaps = np.diff((words >> 1).astype(np.int64), prepend=-1) - 1
    share = np.bincount(gaps)[np.unique(gaps)] / gaps.size
    return float(-(share * np.log2(share)).sum()) + 1


def timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def coded(name: str, words: U32, entropies: dict[str, float], repetitions: int) -> list[Row]:
    """Size and speed for one kind of words."""
    body = rice.encode(words, SIZE)
    assert (rice.decode(body, words.size, SIZE) == words).all()
    taken: dict[str, list[float]] = {"encode": [], "decode": [], "size alone": []}
    for _ in range(repetitions):
        taken["encode"].append(timed(lambda: rice.encode(words, SIZE)))
        taken["decode"].append(timed(lambda: rice.decode(body, words.size, SIZE)))
        taken["size alone"].append(timed(lambda: rice._planned(words, SIZE)))
    rate = {what: words.nbytes / statistics.median(seconds) / 1e6 for what, seconds in taken.items()}
    bits = 8 * body.size / words.size
    return [
        row(f"{name}: words", words.size, "words"),
        row(f"{name}: size", bits, "bits / word"),
        *(row(f"{name}: size / {which}", bits / entropy, "x", at_most=1.08) for which, entropy in entropies.items()),
        row(f"{name}: encode", rate["encode"], "MB/s of words", at_least=500),
        row(f"{name}: decode", rate["decode"], "MB/s of words", at_least=500),
        row(f"{name}: size alone", rate["size alone"], "MB/s of words"),
    ]


def small_rows(words: U32, repetitions: int) -> list[Row]:
    """What a call costs when there is next to nothing to do."""
    body = rice.encode(words, SIZE)

    def per_call(function: Callable[[], object]) -> float:
        def calls() -> None:
            for _ in range(CALLS):
                function()

        return statistics.median(timed(calls) for _ in range(repetitions)) / CALLS * 1e6

    return [
        row("small: encode", per_call(lambda: rice.encode(words, SIZE)), "us", at_most=5),
        row("small: decode", per_call(lambda: rice.decode(body, words.size, SIZE)), "us", at_most=5),
    ]


def rice_rows(repetitions: int) -> list[Row]:
    """All figures."""
    rows: list[Row] = []
    for seed, density in enumerate(DENSITIES):
        words = drawn((density,), seed)
        entropies = {"geometric entropy": geometric_bits(density), "gaps' entropy": histogram_bits(words)}
        rows += coded(f"{density:.1%}", words, entropies, repetitions)
    layers = drawn(LAYERS, len(DENSITIES))
    rows += coded("layers", layers, {"gaps' entropy": histogram_bits(layers)}, repetitions)
    return rows + small_rows(layers[:SMALL].copy(), repetitions)


def main(args: argparse.Namespace) -> None:
    report("entropy", rice_rows(5 if args.quick else 25), args)


if __name__ == "__main__":
    main(arguments(__doc__ or "").parse_args())
