"""What goes wrong, and when: workers that die, stop, slow down, come back or come late; networks that lose, delay, repeat
and part; a supervisor that dies and comes back. Times are seconds of virtual time.

A fault of a moment happens at ``at_s``, or, where ``at_step`` is given, when its worker has made so many steps (of those
that concern no single worker: when the first has). A fault with an extent lasts from ``from_s`` to ``until_s``; None is
the end of the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from taut.core.messages import SUPERVISOR
from taut.errors import Misuse
from taut.simulator.models.units import parse_duration, parse_whole


@dataclass(frozen=True, slots=True)
class Fail:
    """Worker ``rank`` dies, without a word."""

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
class Leave:
    """Worker ``rank`` is asked to go, in order: it hands everything over first."""

    rank: int
    at_s: float = 0.0
    at_step: int | None = None


@dataclass(frozen=True, slots=True)
class KillSupervisor:
    """The supervisor dies, and is back ``back_after_s`` later (None: never), from what it had kept a second ago at most.
    ``moved``: to another address, so that what workers said to it meanwhile is lost; else that waits in their queues."""

    back_after_s: float | None = 1.0
    at_s: float = 0.0
    at_step: int | None = None
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Slow:
    """Worker ``rank`` takes ``times`` as long for each step that it begins meanwhile."""

    rank: int
    times: float
    from_s: float = 0.0
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """Only members of one group hear each other; -1 is the supervisor. Whoever is in no group, the supervisor too, is
    with worker 0, or with the first group where worker 0 is in none.

    >>> Partition(((0, 1), (2, 3))).parts(0, 3), Partition(((0, 1), (2, 3))).parts(1, SUPERVISOR)
    (True, False)
    """

    groups: tuple[tuple[int, ...], ...]
    from_s: float = 0.0
    until_s: float | None = None

    def parts(self, one: int, other: int) -> bool:
        return self.side(one) != self.side(other)

    def side(self, rank: int) -> int:
        """The number of the group that ``rank`` is with."""
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

    def concerns(self, sender: int, to: int) -> bool:
        return concerns(self.one, self.other, sender, to) or (
            not self.one_way and concerns(self.one, self.other, to, sender)
        )


@dataclass(frozen=True, slots=True)
class Throttle:
    """The link between these two carries ``share`` of what it did, either way."""

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
    """A message between these two workers (None: any) is held up with probability ``p``, by up to ``by_s``, and others
    overtake it. Transports do not do that: it is a stress beyond their contract."""

    one: int | None
    other: int | None
    p: float = 0.1
    by_s: float = 0.05
    from_s: float = 0.0
    until_s: float | None = None


Churn = Fail | Pause | Join
Moment = Churn | Restart | Leave | KillSupervisor
Extent = Slow | Partition | Loss | Throttle | Repeat | Reorder
Fault = Moment | Extent
KINDS: dict[str, type[Fault]] = {
    "fail": Fail,
    "pause": Pause,
    "join": Join,
    "restart": Restart,
    "leave": Leave,
    "supervisor": KillSupervisor,
    "slow": Slow,
    "partition": Partition,
    "loss": Loss,
    "throttle": Throttle,
    "repeat": Repeat,
    "reorder": Reorder,
}


def concerns(one: int | None, other: int | None, sender: int, to: int) -> bool:
    """Whether a message from ``sender`` to ``to`` is one from ``one`` to ``other``; None is any worker.

    >>> concerns(0, None, 0, 3), concerns(0, None, 3, 0), concerns(None, None, SUPERVISOR, 3)
    (True, False, False)
    """
    return (sender >= 0 if one is None else sender == one) and (to >= 0 if other is None else to == other)


def kind_of(fault: Fault) -> str:
    """Its name in records."""
    return next(name for name, kind in KINDS.items() if type(fault) is kind)


def newcomers(fault: Fault) -> int:
    """How many workers it brings."""
    return fault.count if isinstance(fault, Join) else 1 if isinstance(fault, Restart) else 0


def mentioned(fault: Fault) -> tuple[int, ...]:
    """The ranks that it speaks of, without the supervisor's."""
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
    """Return what was planned, in a few words.

    >>> fault_text(Fail(2, 30.0)), fault_text(Join(2, 0.0, at_step=9)), fault_text(Partition(((0, 1), (2,)), from_s=5.0))
    ('fail of worker 2 at 30 s', 'join at step 9', 'partition of workers 0, 1, 2 from 5 s on')
    """
    ranks = mentioned(fault)
    whose = f" of worker{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" if ranks else ""
    if isinstance(fault, Extent):
        return f"{kind_of(fault)}{whose} from {fault.from_s:g} s on"
    at = f"{fault.at_s:g} s" if fault.at_step is None else f"step {fault.at_step}"
    return f"{kind_of(fault)}{whose} at {at}"


def parse_fail(written: str) -> Fail:
    """``RANK@TIME``.

    >>> parse_fail("2@30s")
    Fail(rank=2, at_s=30.0, at_step=None)
    """
    rank, at = _halves(written, "fail", "a worker and a time", "2@30s: worker 2 dies after 30 seconds")
    return Fail(parse_whole(rank, f"--fail {written}", "a worker's rank"), parse_duration(at, f"--fail {written}"))


def parse_pause(written: str) -> Pause:
    """``RANK@TIME+DURATION``.

    >>> parse_pause("1@5s+3s")
    Pause(rank=1, at_s=5.0, for_s=3.0, at_step=None)
    """
    example = "1@5s+3s: worker 1 stands still after 5 seconds, for 3"
    blame = f"--pause {written}"
    rank, rest = _halves(written, "pause", "a worker, a time and a duration", example)
    at, plus, duration = rest.partition("+")
    if not plus:
        raise Misuse(blame, "a worker, a time and a duration", f"as in --pause {example}")
    return Pause(parse_whole(rank, blame, "a worker's rank"), parse_duration(at, blame), parse_duration(duration, blame))


def parse_join(written: str) -> Join:
    """``COUNT@TIME``.

    >>> parse_join("2@10s")
    Join(count=2, at_s=10.0, at_step=None)
    """
    count, at = _halves(written, "join", "how many workers and a time", "2@10s: two more after 10 seconds")
    blame = f"--join {written}"
    return Join(parse_whole(count, blame, "how many workers", least=1), parse_duration(at, blame))


def _halves(written: str, flag: str, expected: str, example: str) -> tuple[str, str]:
    before, at, after = written.partition("@")
    if not at:
        raise Misuse(f"--{flag} {written}", expected, f"as in --{flag} {example}")
    return before, after
