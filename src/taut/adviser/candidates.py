"""The combinations that make sense, from the most complete communication to the least: the order is part of the rule.

Completeness as on the design page; within a class the strategy's own codec and the plainer topology come first.
``fedavg``, ``dynamic``, ``admm`` and ``codistillation`` are not among them: they serve other ends than the speed of one
model's training on one set of data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from taut.errors import Misuse
from taut.strategies.compatibility import Combination, combine
from taut.strategies.registry import parse

STEPS = 200  # of a simulated run, and four rounds of those that exchange every 50
LOCKSTEP_STEPS = 30  # where every step is like the last


class Completeness(IntEnum):
    """How much of the others' work reaches a worker, and how late."""

    SYNCHRONOUS = 1
    BOUNDED = 2
    UNBOUNDED = 3
    NEIGHBOURS = 4
    SELDOM = 5
    NOTHING = 6


MEANING = {
    Completeness.SYNCHRONOUS: "all, at once",
    Completeness.BOUNDED: "all, bounded delay",
    Completeness.UNBOUNDED: "all, any delay",
    Completeness.NEIGHBOURS: "neighbours",
    Completeness.SELDOM: "now and then",
    Completeness.NOTHING: "nothing",
}
CLASSES = {
    "sync": Completeness.SYNCHRONOUS,
    "ssp": Completeness.BOUNDED,
    **dict.fromkeys(("async", "relay", "server"), Completeness.UNBOUNDED),
    **dict.fromkeys(
        ("gossip", "dpsgd", "adpsgd", "sgp", "gossipgrad", "choco", "relaysgd"),
        Completeness.NEIGHBOURS,
    ),
    **dict.fromkeys(("averaging", "easgd", "diloco"), Completeness.SELDOM),
    "independent": Completeness.NOTHING,
}
UNDIRECTED = ("ring", "torus", "exponential:directed=no")
# Of strategies that take any: its own (tether), and those that could pay in its place. The others of `taut codecs` differ
# less from one of these in speed than in what they make of quality, which is not known here.
CODECS = (None, "threshold", "int8", "topk", "dense")
# strategy, topologies, codecs; None: its own. In order of completeness, and of what to prefer among equals.
LIST: tuple[tuple[str, tuple[str | None, ...], tuple[str | None, ...]], ...] = (
    ("sync", (None,), (None,)),
    ("sync:schedule=halving-doubling", (None,), (None,)),
    ("sync:schedule=tree", (None,), (None,)),
    ("ssp:3", (None,), CODECS),
    ("async", (None,), CODECS),
    ("async", UNDIRECTED, (None,)),
    ("server", (None,), (None,)),
    ("gossip", (None,), CODECS),
    ("gossip", UNDIRECTED, (None, "dense")),
    ("dpsgd", UNDIRECTED, (None,)),
    ("sgp", ("exponential",), (None,)),
    ("relaysgd", ("tree",), (None,)),
    ("gossipgrad", (None,), (None,)),
    ("choco", ("ring", "torus"), (None,)),
    ("adpsgd", ("ring", None), (None,)),
    ("averaging:every=8", (None,), (None,)),
    ("easgd", (None,), (None,)),
    ("diloco:every=50", (None,), (None,)),
    ("independent", (None,), (None,)),
)


@dataclass(frozen=True)
class Candidate:
    """A strategy as it is typed, with what it needs beside it. ``topology`` and ``codec`` are empty where they are the
    strategy's own."""

    strategy: str
    topology: str
    codec: str
    resolved: Combination
    completeness: Completeness

    @property
    def name(self) -> str:
        """
        >>> [candidate.name for candidate in candidates(4)][7:9]
        ['ssp:3 dense', 'async']
        """
        return " ".join(word for word in (self.strategy, self.topology, self.codec) if word)

    @property
    def every(self) -> int:
        """Steps from one exchange to the next."""
        choice = parse(self.strategy)
        return int(choice.settings.get("every", getattr(choice.kind, "every", 1)))

    @property
    def steps(self) -> int:
        """How many to simulate."""
        return LOCKSTEP_STEPS if self.completeness is Completeness.SYNCHRONOUS else STEPS

    def flags(self) -> list[str]:
        """What to type after ``taut run``, the number of workers aside."""
        words = ["--strategy", self.strategy]
        words += ["--topology", self.topology] if self.topology else []
        return words + (["--codec", self.codec] if self.codec else [])


def candidates(workers: int) -> list[Candidate]:
    """All that work with so many workers, in the order of the list; shapes that so few workers make equal, once.

    >>> [candidate.name for candidate in candidates(1)]
    ['async']
    """
    found: list[Candidate] = []
    seen: set[tuple[object, ...]] = set()
    for strategy, topologies, codecs in LIST:
        for topology in topologies:
            for codec in codecs:
                one = _candidate(strategy, topology, codec, workers)
                if one is None or (key := _same(one, workers)) in seen:
                    continue
                seen.add(key)
                found.append(one)
    return found if workers > 1 else [one for one in found if one.strategy == "async"][:1]


def independent(workers: int) -> Candidate:
    """Workers that never talk: the bound that others are measured by."""
    found = _candidate("independent", None, None, workers)
    assert found is not None
    return found


def _candidate(strategy: str, topology: str | None, codec: str | None, workers: int) -> Candidate | None:
    try:
        resolved = combine(strategy, topology, codec, workers=workers)
    except Misuse:
        return None
    return Candidate(strategy, topology or "", codec or "", resolved, CLASSES[resolved.strategy.name])


def _same(one: Candidate, workers: int) -> tuple[object, ...]:
    """Equal for candidates that differ in nothing but how their topology is called."""
    from taut.topologies.registry import parse as parse_topology

    shape = parse_topology(one.resolved.topology)
    edges = frozenset(shape.wire(range(workers)).edges) if workers <= 64 else one.resolved.topology
    return str(one.resolved.strategy), edges, one.resolved.codec
