"""Faults, and when they happen: workers that die, stop, slow down, come back or come late; networks that lose, delay,
repeat and partition; a supervisor that dies and comes back. Times are seconds of virtual time.

A fault of a moment happens at ``at_s`` or, if ``at_step`` is given, when its worker has made that many steps (if the
fault concerns no single worker: when the first has). A fault with an extent lasts from ``from_s`` to ``until_s``; None is
the end of the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from taut.core.messages import SUPERVISOR
from taut.errors import Misuse


@dataclass(frozen=True, slots=True)
class Fail:
    """Worker ``rank`` dies, without sending anything."""

    rank: int
    at_s: float
    at_step: int | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Worker ``rank`` stands still for ``for_s``, as if its process were stopped."""

    rank: int
    at_s: float
    for_s: float
    at_step: int | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """``count`` more workers come; they get the next ranks."""

    count: int
    at_s: float
    at_step: int | None = None


@dataclass(frozen=True, slots=True)
class Restart:
    """Worker ``rank`` dies, and ``after_s`` later its script is started again: a new worker, with the next rank."""

    rank: int
    after_s: float = 1.0
    at_s: float = 0.0
    at_step: int | None = None


@dataclass(frozen=True, slots=True)
class Departure:
    """Worker ``rank`` is asked to leave: it hands everything over first."""

    rank: int
    at_s: float = 0.0
    at_step: int | None = None


@dataclass(frozen=True, slots=True)
class KillSupervisor:
    """The supervisor dies, and is back ``back_after_s`` later (None: never), from a snapshot of at most a second before.
    ``moved``: it comes back at another address, and messages sent to it meanwhile are lost; else they wait."""

    back_after_s: float | None = 1.0
    at_s: float = 0.0
    at_step: int | None = None
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Slow:
    """Worker ``rank`` takes ``times`` as long for each step that it begins within the extent."""

    rank: int
    times: float
    from_s: float = 0.0
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """Only members of one group can reach each other; -1 is the supervisor. A worker in no group, and the supervisor, is
    with worker 0, or with the first group if worker 0 is in none.

    >>> Partition(((0, 1), (2, 3))).parts(0, 3), Partition(((0, 1), (2, 3))).parts(1, SUPERVISOR)
    (True, False)
    """

    groups: tuple[tuple[int, ...], ...]
    from_s: float = 0.0
    until_s: float | None = None

    def parts(self, one: int, other: int) -> bool:
        return self.side(one) != self.side(other)

    def side(self, rank: int) -> int:
        """Return the number of the group that ``rank`` is with."""
        for wanted in (rank, 0):
            for number, group in enumerate(self.groups):
                if wanted in group:
                    return number
        return 0


@dataclass(frozen=True, slots=True)
class Loss:
    """A message from ``one`` to ``other``, and back unless ``one_way``, is lost with probability ``p``; 1 is a cut link.
    None: from or to any worker; -1: the supervisor."""

    one: int | None
    other: int | None
    p: float = 1.0
    one_way: bool = False
    from_s: float = 0.0
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Throttle:
    """The link between these two has ``share`` of its bandwidth, in either direction."""

    one: int
    other: int
    share: float = 0.01
    from_s: float = 0.0
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Repeat:
    """A message between these two workers (None: any) arrives twice with probability ``p``, the second time up to
    ``by_s`` later. Transports do not do that: it is a stress beyond their contract."""

    one: int | None
    other: int | None
    p: float = 0.1
    by_s: float = 0.05
    from_s: float = 0.0
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Reorder:
    """A message between these two workers (None: any) is delayed with probability ``p``, by up to ``by_s``, and others
    overtake it. Transports do not do that: it is a stress beyond their contract."""

    one: int | None
    other: int | None
    p: float = 0.1
    by_s: float = 0.05
    from_s: float = 0.0
    until_s: float | None = None


Churn = Fail | Pause | Join
Moment = Churn | Restart | Departure | KillSupervisor
Extent = Slow | Partition | Loss | Throttle | Repeat | Reorder
Fault = Moment | Extent
KINDS: dict[str, type[Fault]] = {
    "fail": Fail,
    "pause": Pause,
    "join": Join,
    "restart": Restart,
    "leave": Departure,
    "supervisor": KillSupervisor,
    "slow": Slow,
    "partition": Partition,
    "loss": Loss,
    "throttle": Throttle,
    "repeat": Repeat,
    "reorder": Reorder,
}


def concerns(fault: Loss | Repeat | Reorder, sender: int, to: int) -> bool:
    """Return whether the fault is on the way from ``sender`` to ``to``; its None is any worker.

    >>> [concerns(Loss(0, None, one_way=one_way), 3, 0) for one_way in (False, True)], concerns(Loss(None, None), -1, 3)
    ([True, False], False)
    """
    ways = [(sender, to)] if isinstance(fault, Loss) and fault.one_way else [(sender, to), (to, sender)]
    ends = (fault.one, fault.other)
    return any(
        all(rank >= 0 if end is None else rank == end for rank, end in zip(way, ends, strict=True)) for way in ways
    )


def kind_of(fault: Fault) -> str:
    """Return the fault's name in records."""
    return next(name for name, kind in KINDS.items() if type(fault) is kind)


def newcomers(fault: Fault) -> int:
    return fault.count if isinstance(fault, Join) else 1 if isinstance(fault, Restart) else 0


def mentioned(fault: Fault) -> tuple[int, ...]:
    """Return the ranks that the fault names, without the supervisor's."""
    match fault:
        case Join() | KillSupervisor():
            return ()
        case Partition(groups):
            return tuple(rank for group in groups for rank in group if rank != SUPERVISOR)
        case Loss(one, other) | Throttle(one, other) | Repeat(one, other) | Reorder(one, other):
            return tuple(rank for rank in (one, other) if rank is not None and rank != SUPERVISOR)
        case _:
            return (fault.rank,)


def fault_text(fault: Fault) -> str:
    """Describe the fault in a few words.

    >>> fault_text(Fail(2, 30.0)), fault_text(Join(2, 0.0, at_step=9)), fault_text(Partition(((0, 1), (2,)), from_s=5.0))
    ('fail of worker 2 at 30 s', 'join at step 9', 'partition of workers 0, 1, 2 from 5 s on')
    """
    ranks = mentioned(fault)
    whose = f" of worker{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" if ranks else ""
    if isinstance(fault, Extent):
        return f"{kind_of(fault)}{whose} from {fault.from_s:g} s on"
    at = f"{fault.at_s:g} s" if fault.at_step is None else f"step {fault.at_step}"
    return f"{kind_of(fault)}{whose} at {at}"


def check_fault(fault: Fault) -> None:
    """Raise ``Misuse`` if a figure of ``fault`` is out of its range. The scenario checks whether its workers exist.

    >>> check_fault(Loss(0, 1, p=1.5))
    Traceback (most recent call last):
    taut.errors.Misuse: loss with p=1.5: expected a probability from 0 to 1; 5% is p=0.05
    """
    name = kind_of(fault)
    for each in fields(fault):
        value = getattr(fault, each.name)
        if each.name.endswith("_s") and each.name != "until_s" and value is not None and not 0.0 <= value < 1e9:
            raise Misuse(f"{name} with {each.name}={value}", "seconds from 0 up")
    if isinstance(fault, Moment):
        if fault.at_step is not None and fault.at_step < 1:
            raise Misuse(f"{name} at step {fault.at_step}", "a step from 1 up")
    elif fault.until_s is not None and not fault.from_s < fault.until_s < math.inf:
        raise Misuse(f"{name} from {fault.from_s:g} s to {fault.until_s:g} s", "an end after the beginning")
    match fault:
        case Join(count) if count < 1:
            raise Misuse(f"join of {count} workers", "at least 1")
        case Slow(times=times) if not 0.0 < times < 1e9:
            raise Misuse(f"slow with times={times}", "how many times slower, above 0", "times=10 is ten times slower")
        case Throttle(share=share) if not 0.0 < share <= 1.0:
            raise Misuse(f"throttle with share={share}", "a share above 0, up to 1", "1% is share=0.01; or cut the link")
        case Partition(groups):
            _check_groups(groups)
        case Loss(p=p) | Repeat(p=p) | Reorder(p=p) if not 0.0 <= p <= 1.0:
            raise Misuse(f"{name} with p={p}", "a probability from 0 to 1", "5% is p=0.05")
    if isinstance(fault, Loss | Throttle | Repeat | Reorder):
        _check_ends(fault, name)


def _check_ends(fault: Loss | Throttle | Repeat | Reorder, name: str) -> None:
    if fault.one is not None and fault.one == fault.other:
        raise Misuse(f"{name} between {fault.one} and {fault.other}", "two different workers")
    if isinstance(fault, Repeat | Reorder) and SUPERVISOR in (fault.one, fault.other):
        raise Misuse(f"{name} on a link of the supervisor", "two workers", "its links keep order")


def _check_groups(groups: tuple[tuple[int, ...], ...]) -> None:
    written = ", ".join(str(set(group)) if group else "{}" for group in groups)
    if len(groups) < 2 or not all(groups):
        raise Misuse(f"partition({written})", "two groups or more, with a worker in each", "as in {0, 1}, {2, 3}")
    ranks = [rank for group in groups for rank in group]
    if len(set(ranks)) < len(ranks):
        twice = next(rank for rank in ranks if ranks.count(rank) > 1)
        raise Misuse(f"partition({written})", f"groups that do not overlap: {twice} is in two of them")
