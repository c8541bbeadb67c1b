"""Faults that cannot be are refused before anything runs."""

from __future__ import annotations

import math

from taut.core.messages import SUPERVISOR
from taut.errors import Misuse
from taut.simulator.faults import (
    Churn,
    Fault,
    Join,
    KillSupervisor,
    Leave,
    Loss,
    Partition,
    Pause,
    Reorder,
    Repeat,
    Restart,
    Slow,
    Throttle,
    kind_of,
)


def check_fault(fault: Fault) -> None:
    """``Misuse`` where a figure of ``fault`` is out of its range. Whether its workers exist is the scenario's to say.

    >>> check_fault(Loss(0, 1, p=1.5))
    Traceback (most recent call last):
    taut.errors.Misuse: loss with p=1.5: expected a probability from 0 to 1; 5% is p=0.05
    """
    if isinstance(fault, Churn | Restart | Leave | KillSupervisor):
        _time(fault, "at_s", fault.at_s)
        if fault.at_step is not None and fault.at_step < 1:
            raise Misuse(f"{kind_of(fault)} at step {fault.at_step}", "a step from 1 up")
    else:
        _extent(fault)
    match fault:
        case Join(count) if count < 1:
            raise Misuse(f"join of {count} workers", "at least 1")
        case Pause(for_s=duration_s):
            _time(fault, "for_s", duration_s)
        case Restart(after_s=duration_s):
            _time(fault, "after_s", duration_s)
        case KillSupervisor(back_after_s=duration_s) if duration_s is not None:
            _time(fault, "back_after_s", duration_s)
        case _:
            _check_extent(fault)


def _check_extent(fault: Fault) -> None:
    match fault:
        case Slow(times=times) if not 0.0 < times < 1e9:
            raise Misuse(f"slow with times={times}", "how many times slower, above 0", "times=10 is ten times slower")
        case Throttle(share=share) if not 0.0 < share <= 1.0:
            raise Misuse(f"throttle with share={share}", "a share above 0, up to 1", "1% is share=0.01; or cut the link")
        case Partition(groups):
            _groups(groups)
        case Loss(p=p) | Repeat(p=p) | Reorder(p=p) if not 0.0 <= p <= 1.0:
            raise Misuse(f"{kind_of(fault)} with p={p}", "a probability from 0 to 1", "5% is p=0.05")
        case _:
            pass
    if isinstance(fault, Loss | Throttle | Repeat | Reorder):
        _ends(fault)


def _ends(fault: Loss | Throttle | Repeat | Reorder) -> None:
    one, other = fault.one, fault.other
    if one is not None and one == other:
        raise Misuse(f"{kind_of(fault)} between {one} and {other}", "two different workers")
    if isinstance(fault, Repeat | Reorder):
        if SUPERVISOR in (one, other):
            raise Misuse(f"{kind_of(fault)} of what the supervisor says or hears", "two workers", "its links keep order")
        _time(fault, "by_s", fault.by_s)


def _groups(groups: tuple[tuple[int, ...], ...]) -> None:
    written = ", ".join(str(set(group)) if group else "{}" for group in groups)
    if len(groups) < 2 or not all(groups):
        raise Misuse(f"partition({written})", "two groups or more, with somebody in each", "as in {0, 1}, {2, 3}")
    ranks = [rank for group in groups for rank in group]
    if len(set(ranks)) < len(ranks):
        twice = next(rank for rank in ranks if ranks.count(rank) > 1)
        raise Misuse(f"partition({written})", f"groups that do not overlap: {twice} is in two of them")


def _extent(fault: Slow | Partition | Loss | Throttle | Repeat | Reorder) -> None:
    _time(fault, "from_s", fault.from_s)
    if fault.until_s is not None and not fault.from_s < fault.until_s < math.inf:
        raise Misuse(f"{kind_of(fault)} from {fault.from_s:g} s to {fault.until_s:g} s", "an end after the beginning")


def _time(fault: Fault, name: str, value: float) -> None:
    if not 0.0 <= value < 1e9:
        raise Misuse(f"{kind_of(fault)} with {name}={value}", "seconds from 0 up")
