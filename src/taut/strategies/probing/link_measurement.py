"""Measuring one link from one end: round trips of small messages, then growing bursts, there and back.

Only this end's clock is read, so nothing depends on the other's:

    round trip = the least of several;  rate = bytes of the last burst / (its time - the round trip)

Bursts grow fourfold until one takes long enough to be measured, so that a slow link carries half a megabyte at most and a
fast one is not judged by its start. The figures are those that a worker sees: with framing, encryption and both ends'
queues, not those of the bare wire.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median

from taut.errors import MalformedMessage
from taut.strategies.api import Note, Tell

FIRST_TRIPS = 2  # not counted: the connection is cold
TRIPS, TRIPS_S, LEAST_TRIPS = 50, 0.5, 8  # fewer if they take long: a busy machine delays most of them
PIECE_NBYTES = 1 << 20
FIRST_BURST_NBYTES, MOST_BURST_NBYTES = 64 << 10, 32 << 20
ENOUGH_S, ENOUGH_TRIPS = 0.1, 4  # a burst this long is measured well, and is past TCP's slow start
ALL_PAIRS = 8  # up to so many workers all links are measured; beyond, those at distances 1, 2, 4, 8 ...
PING, PONG, BULK, PULL = "ping", "pong", "bulk", "pull"


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """One worker's figures for its link to another: bytes per second to it (``out``) and from it (``back``)."""

    round_trip_s: float
    typical_trip_s: float
    out_bytes_per_s: float
    back_bytes_per_s: float


@lru_cache(maxsize=1)
def _noise() -> bytes:
    """Return bytes that no compressing tunnel can shorten; the same in every run."""
    return random.Random(0).randbytes(PIECE_NBYTES)


def burst(to: int, serial: int, version: int, nbytes: int) -> list[Tell]:
    """Return so many bytes in pieces; the last piece (``numbers`` = 0 left) is answered, or waited for.

    >>> [len(tell.payload) for tell in burst(1, 0, 0, 2_500_000)]
    [1048576, 1048576, 402848]
    """
    tells = []
    for offset in range(0, nbytes, PIECE_NBYTES):
        piece = memoryview(_noise())[: min(PIECE_NBYTES, nbytes - offset)]
        left = max(0, nbytes - offset - PIECE_NBYTES)
        tells.append(Tell(to, Note(BULK, serial, version, [float(left)]), piece))
    return tells


def answer(sender: int, note: Note) -> list[Tell]:
    """Answer as the other end: echo a ping and the end of a burst, send a burst when asked for one."""
    if note.kind == PING or (note.kind == BULK and _number(note) == 0):
        return [Tell(sender, Note(PONG, note.round, note.part))]
    if note.kind == PULL:
        nbytes = _number(note)
        if not 0 < nbytes <= MOST_BURST_NBYTES:
            raise MalformedMessage(f"a burst of {nbytes:g} bytes was asked for; at most {MOST_BURST_NBYTES} are sent")
        return burst(sender, note.round, note.part, int(nbytes))
    return []


def _number(note: Note) -> float:
    if len(note.numbers) != 1:
        raise MalformedMessage(f"{note.kind!r} with {len(note.numbers)} numbers instead of 1")
    return note.numbers[0]


@dataclass
class Measurement:
    """The state of the end that measures: ``ask``, then ``heard`` with each answer until ``figures`` is set."""

    partner: int
    version: int
    serial: int = 0
    leg: str = PING
    nbytes: int = FIRST_BURST_NBYTES
    asked_s: float = 0.0
    trips: list[float] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)
    figures: LinkFigures | None = None

    def ask(self, now: float) -> list[Tell]:
        self.serial += 1
        self.asked_s = now
        if self.leg == BULK:
            return burst(self.partner, self.serial, self.version, self.nbytes)
        numbers = [float(self.nbytes)] if self.leg == PULL else []
        return [Tell(self.partner, Note(self.leg, self.serial, self.version, numbers))]

    def awaits(self, sender: int, note: Note) -> bool:
        """Return whether this is (part of) the partner's answer to the exchange under way."""
        kind = BULK if self.leg == PULL else PONG
        return (sender, note.kind, note.round) == (self.partner, kind, self.serial)

    def heard(self, note: Note, now: float) -> list[Tell]:
        """Handle an answer, or part of it, and return the next messages."""
        if note.kind == BULK and _number(note) > 0:
            return []
        took_s = now - self.asked_s
        if self.leg == PING:
            self.trips.append(took_s)
            if len(self.trips) >= (TRIPS if sum(self.trips) < TRIPS_S else LEAST_TRIPS):
                self.leg = BULK
            return self.ask(now)
        least_s = min(self.trips[FIRST_TRIPS:])
        net_s = took_s - least_s if took_s > least_s else took_s
        if net_s < max(ENOUGH_S, ENOUGH_TRIPS * least_s) and self.nbytes < MOST_BURST_NBYTES:
            self.nbytes = min(4 * self.nbytes, MOST_BURST_NBYTES)
            return self.ask(now)
        self.rates[self.leg] = self.nbytes / max(net_s, 1e-9)
        if self.leg == BULK:
            self.leg, self.nbytes = PULL, FIRST_BURST_NBYTES
            return self.ask(now)
        self.figures = LinkFigures(least_s, median(self.trips[FIRST_TRIPS:]), self.rates[BULK], self.rates[PULL])
        return []


def pairs(members: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the links to measure, each as the measuring worker and the other end.

    >>> pairs((0, 2, 5)), len(pairs(tuple(range(64))))
    ([(0, 2), (0, 5), (2, 5)], 352)
    """
    count = len(members)
    if count <= ALL_PAIRS:
        return [(one, other) for index, one in enumerate(members) for other in members[index + 1 :]]
    found = []
    distance = 1
    while 2 * distance <= count:
        firsts = range(distance if 2 * distance == count else count)  # at half of the ring, both ends would name the link
        found += [(members[first], members[(first + distance) % count]) for first in firsts]
        distance *= 2
    return found
