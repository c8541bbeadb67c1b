"""Disputes between workers that hold different updates of one origin: which are expelled, which take a state anew. Pure.

Workers compare hash chains of each origin's updates (``strategies/broadcast/hash_chains.py``), and report differences to
the supervisor. Either the origin sent different updates, or one of the two workers lies. So, if the pairs that contradict
each other about one origin

    all have one worker in common    it takes the others' state: it lied, or the origin did, which is unknown
    have none in common              two honest workers contradict each other: the origin is expelled, and all workers
                                     that contradict the largest part of the rest take its state

A single pair has two workers in common: the one goes that was in more disputes, or else came later. So one liar can get
no worker expelled, and make at most one other worker take a state, before it goes itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from msgspec import Struct, field

GRACE_S = 3.0  # from the first report of a dispute to its decision: all others compare meanwhile
Pair = tuple[int, int]


class DisputeRuling(NamedTuple):
    """The decision: whether the origin is expelled, and which workers take over the others' state."""

    expels: bool
    renewed: tuple[int, ...]


class Disputes(Struct):
    """The open disputes, by origin: since when, and between which workers.

    >>> disputes = Disputes()
    >>> for one, other in ((0, 1), (1, 2), (0, 2)):
    ...     disputes.note(3, one, other, now=0.0)
    >>> disputes.due(now=1.0), disputes.due(now=4.0)
    ([], [3])
    >>> disputes.decide(3, live={0, 1, 2})
    DisputeRuling(expels=True, renewed=(1, 2))
    """

    open: dict[int, tuple[float, set[Pair]]] = {}
    shown: set[int] = set()  # origins that were recorded while the run ends
    times: Counter[int] = field(default_factory=Counter)  # disputes that a worker was in, decided ones

    def note(self, origin: int, one: int, other: int, now: float) -> None:
        """Note that worker ``one`` reports ``other`` to hold other updates of ``origin`` than itself."""
        self.open.setdefault(origin, (now, set()))[1].add((min(one, other), max(one, other)))

    def due(self, now: float) -> list[int]:
        """Return the origins whose disputes are to be decided now."""
        return [origin for origin, (since_s, _) in self.open.items() if now - since_s >= GRACE_S]

    def decide(self, origin: int, live: Collection[int]) -> DisputeRuling:
        """Decide a dispute. ``live``: the workers that have the run's state, without the origin."""
        under_way = Counter(rank for _, pairs in self.open.values() for pair in pairs for rank in pair)
        pairs = {pair for pair in self.open.pop(origin)[1] if pair[0] in live and pair[1] in live}
        if not pairs:
            return DisputeRuling(False, ())
        common = set.intersection(*(set(pair) for pair in pairs))
        counts = self.times + under_way
        self.times.update({rank for pair in pairs for rank in pair})
        if common:
            return DisputeRuling(False, (max(common, key=lambda rank: (counts[rank], rank)),))
        against = {rank: {other for pair in pairs if rank in pair for other in pair if other != rank} for rank in live}
        kept = min(live, key=lambda rank: (len(against[rank]), rank))
        return DisputeRuling(True, tuple(sorted(against[kept])))
