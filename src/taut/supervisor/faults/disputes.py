"""Workers that hold different updates of one origin: who is sent away, and who takes the others' state. Pure.

Workers compare hash chains of what each origin sent them (``strategies/broadcast/hash_chains.py``), and tell the
supervisor of whom theirs differs. Either the origin sent different updates, or one of the two does not tell the truth.
So, of the pairs that contradict each other about one origin,

    all have one worker in common    it takes the state of the others anew: it lied, or the origin did, nobody can tell
    they have not                    two workers that do not lie contradict each other: the origin is expelled, and all
                                     that contradict the largest part of the rest take its state

A pair alone has two workers in common: the one goes that is or was in more disputes, or else came later. One liar can so
get nobody expelled, and make one other worker take over a state, before it is the one that goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

GRACE_S = 3.0  # from the first word of a dispute to its end: all others compare meanwhile
Pair = tuple[int, int]


class Ruling(NamedTuple):
    """Say what follows from a dispute: whether its origin is expelled, and who takes over the others' state."""

    expels: bool
    renewed: tuple[int, ...]


@dataclass(slots=True)
class Disputes:
    """Keep the disputes that are not settled, by origin: since when, and between whom.

    >>> disputes = Disputes()
    >>> for one, other in ((0, 1), (1, 2), (0, 2)):
    ...     disputes.note(3, one, other, now=0.0)
    >>> disputes.due(now=1.0), disputes.due(now=4.0)
    ([], [3])
    >>> disputes.settle(3, live={0, 1, 2})
    Ruling(expels=True, renewed=(1, 2))
    """

    open: dict[int, tuple[float, set[Pair]]] = field(default_factory=dict)
    shown: set[int] = field(default_factory=set)  # origins of which a run that is ending was told
    times: Counter[int] = field(default_factory=Counter)  # disputes that a worker was in, settled ones

    def note(self, origin: int, one: int, other: int, now: float) -> None:
        """Worker ``one`` says that ``other`` holds other updates of ``origin`` than itself."""
        self.open.setdefault(origin, (now, set()))[1].add((min(one, other), max(one, other)))

    def due(self, now: float) -> list[int]:
        """The origins whose disputes are to be settled now."""
        return [origin for origin, (since_s, _) in self.open.items() if now - since_s >= GRACE_S]

    def settle(self, origin: int, live: Collection[int]) -> Ruling:
        """End a dispute. ``live``: the workers that have the run's state, without the origin."""
        under_way = Counter(rank for _, pairs in self.open.values() for pair in pairs for rank in pair)
        pairs = {pair for pair in self.open.pop(origin)[1] if pair[0] in live and pair[1] in live}
        if not pairs:
            return Ruling(False, ())
        common = set.intersection(*(set(pair) for pair in pairs))
        counts = self.times + under_way
        self.times.update({rank for pair in pairs for rank in pair})
        if common:
            return Ruling(False, (max(common, key=lambda rank: (counts[rank], rank)),))
        return _without_origin(pairs, live)


def _without_origin(pairs: Collection[Pair], live: Collection[int]) -> Ruling:
    def against(rank: int) -> set[int]:
        return {other for pair in pairs if rank in pair for other in pair if other != rank}

    kept = min(live, key=lambda rank: (len(against(rank)), rank))
    return Ruling(True, tuple(sorted(against(kept))))
