"""All-reduce, pure: a schedule makes a program, and ``Reduction`` executes it over messages. See docs/collectives.md.

schedule.py is the contract of a schedule; ring.py, tree.py, halving_doubling.py and torus.py are one each.
plan.py cuts a program into segments with their dependencies, reduction.py executes the plan.
"""

from __future__ import annotations

from taut.collectives.halving_doubling import HalvingDoubling
from taut.collectives.reduction import SEGMENT_ELEMENTS, Piece, Reduction
from taut.collectives.ring import Ring
from taut.collectives.schedule import Program, Schedule
from taut.collectives.torus import Torus
from taut.collectives.tree import Tree
from taut.errors import Misuse
from taut.specs import did_you_mean

__all__ = ["REGISTRY", "SEGMENT_ELEMENTS", "Piece", "Program", "Reduction", "Schedule", "named"]
REGISTRY: dict[str, Schedule] = {each.name: each for each in (Ring(), HalvingDoubling(), Torus(), Tree())}


def named(name: str) -> Schedule:
    """Return the schedule called ``name``, with its defaults.

    >>> named("torus")
    Torus(rows=None)
    """
    if name not in REGISTRY:
        remedy = did_you_mean(name, REGISTRY, "take 'ring'")
        raise Misuse(f"schedule {name!r}", f"one of {', '.join(REGISTRY)}", remedy)
    return REGISTRY[name]
