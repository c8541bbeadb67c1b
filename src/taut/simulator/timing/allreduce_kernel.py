"""An all-reduce of many positions at once: the schedule's own programs, round by round, for all positions in one loop.

Message by message, a ring of a thousand would take two million events per step. Here the programs of all positions
(``collectives``) are laid out as tables, whom each position sends to in each round and how long that takes, and one
kernel goes through them. Per position it keeps when the first and the last piece of what it has to send next are there,
since long messages are cut into pieces that go on while the rest still comes:

    begin = max(first, cable free);   end = max(begin + bytes / rate, last + piece / rate)
    first' = begin + piece / rate + latency;   last' = max(end, receiver's cable free + bytes / rate) + latency

What is approximated: all pieces of a message are equal; what a position sends waits for all that it received in rounds
before (in a ring that is exact); jitter and loss count with their mean; where several workers share a cable or an
uplink, those that send in the same round get equal shares of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from taut.collectives.schedule import ELEMENT_NBYTES, Range, Schedule
from taut.simulator.models.links import Links
from taut.simulator.models.network import Network, wire_nbytes
from taut.simulator.models.rng import Rng
from taut.simulator.timing.stand_ins import FRAME_NBYTES
from taut.strategies.allreduce.group import LEAST_SEGMENT_ELEMENTS, PIPELINE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from taut.simulator.models.costs import Costs

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

MOST_ENTRIES = 6_000_000  # positions * rounds of a table; beyond, the schedule's formula is asked
PROBE_NBYTES = 1 << 25
PROBES = 16  # of routes with chance in them
LONG_NS = 1 << 50
_NONE = Range(-1, 0, 0)


@dataclass(frozen=True)
class ScheduleTable:
    """``to[r, i]``: whom position i sends to in round r, -1 for nobody; ``takes_ns``: how long that occupies the cables,
    ``hop_ns``: what the way adds, ``work_ns``: what it costs the receiver's thread; ``pieces[r]``: of a message.
    ``sent_nbytes[i]``: by position i in all; ``cable_ns[i]``: how long that occupies its cable."""

    to: Ints
    takes_ns: Floats
    hop_ns: Floats
    work_ns: Floats
    pieces: Ints
    sent_nbytes: npt.NDArray[np.int64]
    cable_ns: Floats
    formula_ns: float = -1.0  # where the table would be too large: the time after the last has begun

    def run(self, starts_ns: Floats) -> Floats:
        """Return when each worker has the sum, if they begin at ``starts_ns``."""
        if self.formula_ns >= 0.0:
            return np.full_like(starts_ns, starts_ns.max() + self.formula_ns)
        ends: Floats = _kernel()(starts_ns, self.to, self.takes_ns, self.hop_ns, self.work_ns, self.pieces)
        return ends


def table(
    schedule: Schedule,
    ranks: Sequence[int],
    elements: int,
    links: Links,
    costs: Costs,
    element_nbytes: int = ELEMENT_NBYTES,
) -> ScheduleTable:
    """Return the table for an all-reduce of ``elements`` by ``ranks`` over the cables of ``links``."""
    p = len(ranks)
    rounds = schedule.rounds(p)
    if p * rounds > MOST_ENTRIES:
        return _by_formula(schedule, ranks, elements * element_nbytes // ELEMENT_NBYTES, links, costs)
    to = np.full((rounds, p), -1, np.int32)
    sizes = np.zeros((rounds, p), np.int64)
    for position in range(p):
        sends = [sends[-1] if sends else _NONE for sends, _ in schedule.exchanges(p, position, elements)]
        to[: len(sends), position] = [send.peer if send.hi > send.lo else -1 for send in sends]
        sizes[: len(sends), position] = [element_nbytes * (send.hi - send.lo) for send in sends]
    segment_nbytes = element_nbytes * max(LEAST_SEGMENT_ELEMENTS, elements // (PIPELINE * p))
    pieces = np.maximum(1, -(-sizes.max(axis=1, initial=0) // segment_nbytes)).astype(np.int32)
    takes, hops = _ways(to, sizes, ranks, links)
    per_byte_ns = 1e9 * (costs.receive_s_per_byte + costs.copy_s_per_byte + costs.send_s_per_byte)
    work = np.where(to >= 0, sizes * per_byte_ns + 2e9 * costs.message_s * pieces[:, None], 0.0)
    sent = (np.where(to >= 0, sizes + FRAME_NBYTES * pieces[:, None], 0)).sum(axis=0)
    return ScheduleTable(to, takes, hops, work, pieces, sent, takes.sum(axis=0))


def _ways(to: Ints, sizes: npt.NDArray[np.int64], ranks: Sequence[int], links: Links) -> tuple[Floats, Floats]:
    """Return how long each message occupies the cables, and what latency adds."""
    network, moments = Network(links, Rng(0, "probe")), count(LONG_NS, LONG_NS)
    rates, hops = np.zeros(to.shape), np.zeros(to.shape)
    positions = np.arange(to.shape[1])
    known: dict[tuple[int, int], tuple[float, float]] = {}
    for number in range(to.shape[0]):
        if number and np.array_equal(to[number], to[number - 1]):
            rates[number], hops[number] = rates[number - 1], hops[number - 1]
            continue
        for position in positions[to[number] >= 0].tolist():
            pair = ranks[position], ranks[to[number, position]]
            if pair not in known:
                known[pair] = _probe(network, *pair, moments)
            rates[number, position], hops[number, position] = known[pair]
    wire = (sizes + FRAME_NBYTES) * (1514 / 1448)
    takes = np.where(to >= 0, wire * rates, 0.0)
    if links.per_host > 1 or links.shared:
        for number in range(to.shape[0]):
            takes[number] = _crowded(to[number], wire[number], takes[number], ranks, links)
    return takes, hops


def _probe(network: Network, sender: int, to: int, moments: Iterator[int]) -> tuple[float, float]:
    """Return nanoseconds per byte on the wire between two workers, and nanoseconds that a message takes besides.
    ``moments`` are so far apart that all cables are free again."""
    now_ns = next(moments)
    first_ns = network.arrival(sender, to, PROBE_NBYTES, now_ns)
    per_byte = (network.arrival(sender, to, PROBE_NBYTES, now_ns) - first_ns) / wire_nbytes(PROBE_NBYTES)
    waits_ns = 0
    for _ in range(PROBES):
        now_ns = next(moments)
        waits_ns += network.arrival(sender, to, 0, now_ns) - now_ns
    return max(0.0, per_byte), max(0.0, waits_ns / PROBES - per_byte * wire_nbytes(0))


def _crowded(to: Ints, wire: Floats, takes: Floats, ranks: Sequence[int], links: Links) -> Floats:
    """Return how long messages take where several workers send over the same cable in one round: each has its share."""
    numbers = np.asarray(ranks)
    sends = to >= 0
    hosts, their = numbers // links.per_host, numbers[to] // links.per_host
    leaves = sends & (hosts != their)
    out = np.bincount(hosts[leaves], minlength=int(hosts.max()) + 1)
    into = np.bincount(their[leaves], minlength=int(hosts.max()) + 1)
    crowd = np.where(leaves, np.maximum(out[hosts], into[their]), 0)
    shared: Floats = takes * crowd
    for uplink in links.shared:
        inside = np.isin(numbers, list(uplink.members)) if uplink.members else np.ones(len(numbers), bool)
        ways = (leaves & inside & ~inside[to], leaves & ~inside & inside[to]) if uplink.members else (leaves,)
        for crosses in ways:
            limit_ns = np.where(crosses, wire * 8e9 / uplink.bits_per_s * crosses.sum(), 0.0)
            shared = np.maximum(shared, limit_ns)
    return shared


def _by_formula(schedule: Schedule, ranks: Sequence[int], elements: int, links: Links, costs: Costs) -> ScheduleTable:
    """Return the schedule's own formula, at the slowest cable between neighbours in rank, where a table would be too
    large."""
    p, nbytes = len(ranks), ELEMENT_NBYTES * elements
    network, moments = Network(links, Rng(0, "probe")), count(LONG_NS, LONG_NS)
    ways = [_probe(network, ranks[i], ranks[(i + 1) % p], moments) for i in range(0, p, max(1, p // 256))]
    per_byte = max(way[0] for way in ways) * 1514 / 1448
    per_byte += 1e9 * (costs.receive_s_per_byte + costs.copy_s_per_byte + costs.send_s_per_byte)
    hop_ns = max(way[1] for way in ways) + 2e9 * costs.message_s
    frames = FRAME_NBYTES * schedule.rounds(p)
    formula_ns = 1e9 * schedule.cost(p, nbytes, hop_ns * 1e-9, per_byte * 1e-9)
    sent = np.array([schedule.bytes_sent(p, position, nbytes) + frames for position in range(p)], np.int64)
    none: Any = np.zeros((0, p))
    cable_ns = np.multiply(sent, per_byte, dtype=np.float64)
    return ScheduleTable(none.astype(np.int32), none, none, none, none[:, 0], sent, cable_ns, formula_ns)


def _rounds(starts: Floats, to: Ints, takes: Floats, hops: Floats, work: Floats, pieces: Ints) -> Floats:
    """Return when each worker has the sum. Times are in nanoseconds."""
    p = starts.shape[0]
    first, last, sending, busy = starts.copy(), starts.copy(), starts.copy(), starts.copy()
    receiving = np.zeros(p)
    came_first, came_last, cost = np.zeros(p), np.zeros(p), np.zeros(p)
    came = np.zeros(p, np.bool_)
    for number in range(to.shape[0]):
        parts = pieces[number]
        for position in range(p):
            other = to[number, position]
            if other < 0:
                continue
            takes_ns, hop_ns = takes[number, position], hops[number, position]
            piece_ns = takes_ns / parts
            begin = max(first[position], sending[position])
            end = max(begin + takes_ns, last[position] + piece_ns)
            sending[position] = end
            done = max(end, receiving[other] + takes_ns)
            receiving[other] = done
            came_first[other], came_last[other] = begin + piece_ns + hop_ns, done + hop_ns
            cost[other], came[other] = work[number, position], True
        for position in range(p):
            if came[position]:
                came[position] = False
                share = cost[position] / parts
                busy[position] = max(came_last[position] + share, busy[position] + cost[position])
                last[position] = max(last[position], busy[position])
                first[position] = max(first[position], came_first[position] + share)
    return last


@cache
def _kernel() -> Any:
    import numba

    return numba.njit(nogil=True, cache=True)(_rounds)


def relative(starts_ns: Sequence[int]) -> tuple[int, Floats]:
    """Return the earliest time, and all of them from there on: floats hold those exactly.

    >>> relative([5, 7])
    (5, array([0., 2.]))
    """
    origin = min(starts_ns)
    return origin, np.array([start - origin for start in starts_ns], np.float64)


def whole(ends: Floats, origin_ns: int) -> list[int]:
    """Return times in whole nanoseconds."""
    return [origin_ns + math.ceil(end - 1e-6) for end in ends.tolist()]
