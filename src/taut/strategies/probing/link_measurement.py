"""Measuring one link from one end: round trips of small messages, then growing bursts, there and back.

Only this end's clock is read, so nothing depends on the other's:

    round trip = the least of several;  rate = bytes of the last burst / (its time - the round trip)

Bursts grow fourfold until one takes long enough to be measured, so that a slow link carries half a megabyte at most and a
fast one is not judged by its start. What is measured is what a worker sees: through framing, encryption and both ends'
queues, not the bare wire.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median

from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.api import Tell

FIRST_TRIPS = 2  # find the connection cold, and do not count
TRIPS, TRIPS_S, LEAST_TRIPS = 50, 0.5, 8  # so many, or as many as there is time for: a busy machine delays most of them
PIECE_NBYTES = 1 << 20
FIRST_BURST_NBYTES, MOST_BURST_NBYTES = 64 << 10, 32 << 20
ENOUGH_S, ENOUGH_TRIPS = 0.1, 4  # a burst this long is measured well, and is past TCP's slow start
ALL_PAIRS = 8  # up to so many workers all links are measured; of more, those at distances 1, 2, 4, 8 ...
PING, PONG, BULK, PULL = "ping", "pong", "bulk", "pull"


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """What one worker found out about its link to another: bytes per second to it (``out``) and from it (``back``)."""

    round_trip_s: float
    typical_trip_s: float
    out_bytes_per_s: float
    back_bytes_per_s: float


@lru_cache(maxsize=1)
def _noise() -> bytes:
    """Bytes that no compressing tunnel can shorten; the same in every run."""
    return random.Random(0).randbytes(PIECE_NBYTES)


def burst(to: int, serial: int, version: int, nbytes: int) -> list[Tell]:
    """So many bytes in pieces; the last one (``numbers`` = 0 left) is the one that is answered, or waited for.

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
    """The other end's part: echo a ping and the end of a burst, send a burst when asked for one."""
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
    """The state of the end that measures. Begin with ``ask``; then tell it what is ``heard`` until ``figures`` is set."""

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
        """The next exchange begins."""
        self.serial += 1
        self.asked_s = now
        if self.leg == BULK:
            return burst(self.partner, self.serial, self.version, self.nbytes)
        numbers = [float(self.nbytes)] if self.leg == PULL else []
        return [Tell(self.partner, Note(self.leg, self.serial, self.version, numbers))]

    def awaits(self, sender: int, note: Note) -> bool:
        """Whether this is (part of) the partner's answer to the exchange that is under way."""
        kind = BULK if self.leg == PULL else PONG
        return (sender, note.kind, note.round) == (self.partner, kind, self.serial)

    def heard(self, note: Note, now: float) -> list[Tell]:
        """The answer came, or part of it; what to send next."""
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
    """The links to measure, each as the one who measures it and the other end.

    >>> pairs((0, 2, 5)), len(pairs(tuple(range(64))))
    ([(0, 2), (0, 5), (2, 5)], 352)
    """
    count = len(members)
    if count <= ALL_PAIRS:
        return [(one, other) for place, one in enumerate(members) for other in members[place + 1 :]]
    found = []
    distance = 1
    while 2 * distance <= count:
        firsts = range(distance if 2 * distance == count else count)  # halfway round, both ends would name the link
        found += [(members[first], members[(first + distance) % count]) for first in firsts]
        distance *= 2
    return found
