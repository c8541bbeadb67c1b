"""When may a worker go on, and how are updates merged? One file per strategy, all pure: events in, actions out."""

from __future__ import annotations

from taut.errors import Misuse
from taut.strategies.asynchronous import Asynchronous
from taut.strategies.broadcast import Broadcast, BroadcastState
from taut.strategies.independent import Independent

REGISTRY: dict[str, type[Asynchronous] | type[Independent]] = {
    "async": Asynchronous,
    "independent": Independent,
}


def named(name: str) -> type[Asynchronous] | type[Independent]:
    """The strategy called ``name``.

    >>> named("async").__name__
    'Asynchronous'
    """
    if name not in REGISTRY:
        from difflib import get_close_matches

        near = get_close_matches(name, REGISTRY, n=1)
        known = ", ".join(sorted(REGISTRY))
        raise Misuse(f"strategy {name!r}", f"one of {known}", f"did you mean {near[0]!r}?" if near else "")
    return REGISTRY[name]


__all__ = ["REGISTRY", "Asynchronous", "Broadcast", "BroadcastState", "Independent", "named"]
