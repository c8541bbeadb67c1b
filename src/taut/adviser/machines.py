"""From a probe to what the simulator needs: cables, paces and costs.

Ranks are counted anew from 0, in the order of the probe. Where more workers are asked for than were probed, the others
are taken to be as the middle one is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median

from taut.adviser.record import CodecProbe, Probe
from taut.simulator.models.costs import CodecCost, Costs
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds

WIRE = 1514 / 1448  # bytes on the wire for each that is carried: the simulator adds headers to what was measured without
ALIKE = 0.1  # cables that differ by less are taken to be equal
SLOWER = 0.7  # a pair this much slower than its cables has something between them
STEADY = 0.02  # a spread below this is none


def speeds_of(probe: Probe) -> Speeds:
    """Return every worker's own pace, the mean of its steps; chance as the middle worker has it."""
    mean_s = [worker.mean_step_s for worker in probe.workers]
    middle_s = median(mean_s)
    sigma = median(worker.spread for worker in probe.workers)
    factors = {worker: one_s / middle_s for worker, one_s in enumerate(mean_s)}
    return Speeds(
        step_s=middle_s,
        draw=f"lognormal:{sigma:.3g}" if sigma >= STEADY else "constant",
        stragglers={worker: factor for worker, factor in factors.items() if abs(factor - 1.0) > STEADY},
    )


def costs_of(probe: Probe, given: Costs | None = None) -> Costs:
    """Return the costs of codecs as the probe measured them, the middle worker's; the others as ``given``, or as taut
    has them. A probe cannot see the fixed cost of an update."""
    given = Costs() if given is None else given
    codecs: dict[str, CodecCost] = dict(given.codecs)
    for name in {name for worker in probe.workers for name in worker.codecs}:
        found = [worker.codecs[name] for worker in probe.workers if name in worker.codecs]
        keys = CodecProbe.__struct_fields__
        codecs[name] = CodecCost(**{key: median(getattr(one, key) for one in found) for key in keys})
    return replace(given, codecs=codecs)


def links_of(probe: Probe, message_s: float = 0.0) -> Links:
    """Return a cable for every worker, as fast as the fastest transfer that was seen on it; a pair that is slower than
    both its cables has a line of its own between them. ``message_s``: the time to handle a message at each end, which the
    simulator counts by itself and which is in every measured round trip.

        one way = round trip / 2 - 2 * message_s;  each of the two cables has half of it
    """
    index_of = {worker.rank: index for index, worker in enumerate(probe.workers)}
    measured = [link for link in probe.links if link.one in index_of and link.other in index_of]
    if not measured:
        return Links()
    bits = {(index_of[link.one], index_of[link.other]): 8.0 * WIRE * link.bytes_per_s for link in measured}
    one_way_s = [max(0.0, link.round_trip_s / 2.0 - 2.0 * message_s) for link in measured]
    ways_s = dict(zip(bits, one_way_s, strict=True))
    cables = _ends(bits, max)
    delays_s = {worker: way_s / 2.0 for worker, way_s in _ends(ways_s, min).items()}
    usual = Link(median(cables.values()), median(delays_s.values()))
    return Links(
        default=usual,
        of_worker={
            worker: Link(cables[worker], delays_s[worker])
            for worker in sorted(cables)
            if abs(cables[worker] / usual.bits_per_s - 1.0) > ALIKE or delays_s[worker] != usual.latency_s
        },
        of_pair=_between(bits, ways_s, cables, delays_s),
    )


def _ends(of_pair: Mapping[tuple[int, int], float], choose: Callable[[list[float]], float]) -> dict[int, float]:
    """Return for every worker the most or the least of its pairs' figures."""
    found: dict[int, list[float]] = {}
    for pair, value in of_pair.items():
        for worker in pair:
            found.setdefault(worker, []).append(value)
    return {worker: choose(values) for worker, values in found.items()}


def _between(
    bits: Mapping[tuple[int, int], float],
    ways_s: Mapping[tuple[int, int], float],
    cables: Mapping[int, float],
    delays_s: Mapping[int, float],
) -> dict[tuple[int, int], Link]:
    found = {}
    for (one, other), rate in bits.items():
        extra_s = ways_s[one, other] - delays_s[one] - delays_s[other]
        slower = rate < SLOWER * min(cables[one], cables[other])
        longer = extra_s > max(1e-4, ALIKE * ways_s[one, other])
        if slower or longer:
            found[one, other] = Link(rate if slower else math.inf, max(0.0, extra_s) if longer else 0.0)
    return found
