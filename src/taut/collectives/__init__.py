"""All-reduce, pure: a schedule makes a program, and ``Reduction`` executes it over messages. See docs/collectives.md.

schedule.py is the contract of a schedule; ring.py, tree.py, halving_doubling.py, torus.py and gather.py are one each.
plan.py cuts a program into segments with their dependencies, reduction.py executes the plan and weighs by samples.
"""

from __future__ import annotations

from taut.collectives.gather import Gather
from taut.collectives.halving_doubling import HalvingDoubling
from taut.collectives.reduction import SEGMENT_ELEMENTS, Piece, Reduction, mean, weigh
from taut.collectives.ring import Ring
from taut.collectives.schedule import Program, ReceiveStep, Schedule, SendStep
from taut.collectives.torus import Torus
from taut.collectives.tree import Tree
from taut.errors import Misuse
from taut.specs import did_you_mean

REGISTRY: dict[str, Schedule] = {each.name: each for each in (Ring(), HalvingDoubling(), Torus(), Tree(), Gather())}


def named(name: str) -> Schedule:
    """Return the schedule called ``name``, with its defaults.

    >>> named("torus")
    Torus(rows=None)
    """
    if name not in REGISTRY:
        remedy = did_you_mean(name, REGISTRY, "take 'ring'")
        raise Misuse(f"schedule {name!r}", f"one of {', '.join(REGISTRY)}", remedy)
    return REGISTRY[name]


def best(p: int, nbytes: int, latency_s: float, seconds_per_byte: float) -> Schedule:
    """Return the cheapest schedule that sums, by its cost formula; of equals, the first of the registry.

    ``nbytes``: per position; ``latency_s``, ``seconds_per_byte``: of the network between any two positions.

    >>> fast, slow = 8 / 1e9, 8 / 1e8
    >>> best(8, 10**8, 1e-4, fast).name, best(12, 10**8, 1e-4, slow).name, best(5, 1000, 1e-2, fast).name
    ('halving-doubling', 'torus', 'halving-doubling')
    """
    for what, value in (("nbytes", nbytes), ("latency_s", latency_s), ("seconds_per_byte", seconds_per_byte)):
        if not value >= 0:
            raise Misuse(f"{what} = {value}", "0 or more")
    summing = [each for each in REGISTRY.values() if each.sums]
    return min(summing, key=lambda each: each.cost(p, nbytes, latency_s, seconds_per_byte))


__all__ = [
    "REGISTRY",
    "SEGMENT_ELEMENTS",
    "Gather",
    "HalvingDoubling",
    "Piece",
    "Program",
    "ReceiveStep",
    "Reduction",
    "Ring",
    "Schedule",
    "SendStep",
    "Torus",
    "Tree",
    "best",
    "mean",
    "named",
    "weigh",
]
