"""The combinations that make sense, from the most complete communication to the least: the order is part of the rule.

Each strategy's class says how complete it is and which variants to try (``StrategyInfo``); codecs and topologies say
whether they are ``advised``. Within a class of completeness the order is that of the registry, and the strategy's own
codec and the plainer topology come first. Strategies without a variant serve other ends than the speed of one model's
training on one set of data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from taut.errors import Misuse
from taut.plugins import CODECS, STRATEGIES, TOPOLOGIES
from taut.strategies.compatibility import Combination, combine
from taut.strategies.info import ADVISED, Completeness, Variant
from taut.strategies.registry import parameters, parse

__all__ = ["Candidate", "Completeness", "candidates", "independent"]
STEPS = 200  # of a simulated run, and four rounds of those that exchange every 50
LOCKSTEP_STEPS = 30  # where every step is like the last


@dataclass(frozen=True)
class Candidate:
    """A strategy as it is typed. ``topology`` and ``codec`` are empty where they are the strategy's own."""

    strategy: str
    topology: str
    codec: str
    resolved: Combination
    completeness: Completeness

    @property
    def name(self) -> str:
        """Return the name in tables.

        >>> [candidate.name for candidate in candidates(4)][7:9]
        ['ssp:3 dense', 'async']
        """
        return " ".join(word for word in (self.strategy, self.topology, self.codec) if word)

    @property
    def every(self) -> int:
        """Return the steps from one exchange to the next."""
        choice = parse(self.strategy)
        return int(choice.settings.get("every", parameters(choice.name).get("every", 1)))

    @property
    def lockstep(self) -> bool:
        """Return whether every step is like the last."""
        return self.completeness is Completeness.SYNCHRONOUS

    @property
    def steps(self) -> int:
        """Return how many steps of a simulated run are enough, unless they are very short."""
        return LOCKSTEP_STEPS if self.lockstep else STEPS

    def flags(self) -> list[str]:
        """Return the words to type after ``taut run``, the number of workers aside."""
        words = ["--strategy", self.strategy]
        words += ["--topology", self.topology] if self.topology else []
        return words + (["--codec", self.codec] if self.codec else [])


def candidates(workers: int) -> list[Candidate]:
    """Return all combinations that work with so many workers, the most complete first; of equal shapes one.

    >>> [candidate.name for candidate in candidates(1)]
    ['async']
    """
    found: list[Candidate] = []
    seen: set[tuple[object, ...]] = set()
    for name in sorted(STRATEGIES, key=lambda name: STRATEGIES[name].info.completeness):
        for strategy, topology, codec in _tried(name):
            one = _candidate(strategy, topology, codec, workers)
            if one is None or (key := _key(one, workers)) in seen:
                continue
            seen.add(key)
            found.append(one)
    return found if workers > 1 else [one for one in found if one.strategy == "async"][:1]


def _tried(name: str) -> Iterator[tuple[str, str, str]]:
    """Yield a strategy's variants, each with every topology and codec that goes with it; an empty text: its own."""
    from taut.codecs import parse as parse_codec

    kind = STRATEGIES[name]
    variant: Variant
    for variant in kind.info.variants:
        strategy = f"{name}:{variant.settings}" if variant.settings else name
        topologies, codecs = variant.topologies, variant.codecs
        if ADVISED in topologies:
            topologies = tuple(TOPOLOGIES[one].advised for one in TOPOLOGIES if TOPOLOGIES[one].advised)
        if ADVISED in codecs:
            turns = {one: parse_codec(one).facts.advised for one in CODECS if one != kind.codecs[0]}
            codecs = ("", *sorted((one for one in turns if turns[one]), key=lambda one: turns[one]))
        yield from ((strategy, topology, codec) for topology in topologies for codec in codecs)


def independent(workers: int) -> Candidate:
    """Return workers that never exchange anything: the bound that others are measured by."""
    found = _candidate("independent", "", "", workers)
    assert found is not None
    return found


def _candidate(strategy: str, topology: str, codec: str, workers: int) -> Candidate | None:
    try:
        resolved = combine(strategy, topology or None, codec or None, workers=workers)
    except Misuse:
        return None
    return Candidate(strategy, topology, codec, resolved, resolved.strategy.kind.info.completeness)


def _key(one: Candidate, workers: int) -> tuple[object, ...]:
    """Return a key that is equal for candidates that differ in nothing but the name of their topology."""
    from taut.topologies.registry import parse as parse_topology

    shape = parse_topology(one.resolved.topology)
    edges = frozenset(shape.wire(range(workers)).edges) if workers <= 64 else one.resolved.topology
    return str(one.resolved.strategy), edges, one.resolved.codec
