"""Dynamic averaging: workers talk only when one of them has strayed too far from the last common model.

    every b steps, each worker by itself:    |x_i - ref|^2 <= D  ?    then say nothing, and go on

A worker that violates it sends its x to the coordinator (the lowest rank) and waits. The coordinator *balances*: it takes
the mean of those that strayed; if that is within D of ref, they go on from it, and nobody else has noticed. If not, it
asks others drawn at random, as many again as there are, who bring their x at their next check. Once that would be more
than half of all, everybody averages with everybody (an all-reduce, weighted by samples), and the mean is the new ref.

While training goes well and workers drift alike, that saves most of the traffic; D = 0 is ``averaging:every=b``.
Exchanged: x. The optimizer's moments stay at home. One more vector per worker (ref), and one at the coordinator for each
worker being balanced. When the coordinator dies, those who wait for its verdict call for an average of all. A worker
whose verdict, or average of all, is held up trains on, and x <- mean + (x - x_then) when it comes
(``overlapped_round.py``). Paper: Kamp et al. 2018, "Efficient Decentralized Deep Learning by Dynamic Model Averaging".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from taut.collectives import named
from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse
from taut.strategies.allreduce.group import Group
from taut.strategies.api import (
    Heard,
    Leaving,
    Local,
    MemberPlace,
    MethodAction,
    MethodEvent,
    Placed,
    Stepped,
    Tell,
    check_whole,
)
from taut.strategies.info import Completeness, StrategyInfo
from taut.strategies.periodic.dynamic_coordinator import Adopt, Ask, DynamicCoordinator, Everybody, within
from taut.strategies.periodic.periodic import Period, Periodic

if TYPE_CHECKING:
    from taut.strategies.api import Vector

KINDS = ("stray", "adopt", "ask", "full", "reference")
FIGURES = ("checks", "strays", "balanced", "messages")


@dataclass
class Watch(Period):
    """A worker's state. Averages of all are numbered; what is said in view of the next one carries its number, 0 where
    the speaker has not taken part in any and cannot know."""

    reference: Vector = None  # type: ignore[assignment]  # set by start
    strayed: bool = False  # the coordinator has our x, and we wait for its verdict
    apart: bool = False  # we trained since our x was last in a mean
    verdict: Vector | None = None  # it came while we trained on
    asked: int = -1  # it wants our x at our next check, before this average
    called: int = 0  # somebody is in this average of all
    callers: set[int] = field(default_factory=set)  # they are in their first one, whichever it is
    announced: set[int] = field(default_factory=set)  # who knows that we call for the next one
    noted: bool = False  # the average that we are in is over, though we train, and have not taken it
    met: set[int] = field(default_factory=set)  # with whom we have averaged
    balance: DynamicCoordinator = field(default_factory=DynamicCoordinator)  # the coordinator's
    early: dict[int, Vector] = field(default_factory=dict)  # strays from after an average that we are still in
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FIGURES, 0))

    @property
    def next(self) -> int:
        """The number of the next average of all."""
        return self.group.completed + 1 if self.rounds or self.noted else 0

    @property
    def call(self) -> bool:
        return self.called > self.group.completed or bool(self.callers)


@dataclass(frozen=True)
class Dynamic(Periodic):
    """``--strategy dynamic:threshold=1.0,every=10``.

    ``threshold``: D, on the squared distance; ``every``: b, steps between two checks; ``schedule``: of the all-reduce.

    >>> import numpy as np
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(Dynamic(threshold=float("inf"), every=2), [np.zeros(1, np.float32) for _ in range(3)])
    >>> world.run(8)
    >>> world.messages
    0
    """

    name: ClassVar[str] = "dynamic"
    info: ClassVar[StrategyInfo] = StrategyInfo(Completeness.SELDOM, ())  # it is meant for traffic, not for speed
    paper: ClassVar[str] = "Kamp et al. 2018"
    concurrent: ClassVar[bool] = True  # the coordinator gives its verdicts while it trains

    threshold: float = 1.0
    every: int = 10
    schedule: str = "ring"

    def __post_init__(self) -> None:
        if not isinstance(self.threshold, int | float) or not self.threshold >= 0.0:
            raise Misuse(
                f"dynamic: threshold={self.threshold}",
                "a number of at least 0",
                "0 averages at every check, inf never does",
            )
        check_whole(self, "every", 1, "so many steps between two checks")
        named(self.schedule)

    def start(self, place: MemberPlace, local: Local) -> Watch:
        return Watch(local, place, Group(place, len(local.x), self.schedule), reference=local.x.copy())

    def on(self, state: Watch, event: MethodEvent, now: float) -> list[MethodAction]:
        actions: list[MethodAction] = []
        if isinstance(event, Heard) and event.note.kind in KINDS:
            self._hear(state, event)
        elif isinstance(event, Stepped):
            state.apart = state.apart or event.samples > 0
            if state.verdict is not None:
                _adopt(state, state.verdict)
        elif isinstance(event, Leaving) and self.owing(state):
            actions += _call(state)
        elif isinstance(event, Placed):
            actions += self._move(state, event.place)
        actions += super().on(state, event, now)
        if state.begun and state.group.done:
            self._note(state)
        if state.place.rank == state.place.members[0] and not state.begun and not state.call:
            self._judge(state, actions)
            self._go_on(state, actions)
        state.counts["messages"] += sum(isinstance(action, Tell) for action in actions)
        return actions

    def figures(self, state: Watch) -> dict[str, float]:
        counts = {name: float(count) for name, count in state.counts.items()}
        return {"syncs": float(state.rounds), **counts, **state.drift.figures()}

    # -------------------------------------------------------------------------------------------- checks, rounds

    def due(self, state: Watch) -> bool:
        return state.steps >= self.every

    def wants(self, state: Watch) -> bool:
        return (state.idle or self.due(state)) and (state.draining or state.call)

    def holds(self, state: Watch, actions: list[MethodAction]) -> bool:
        """Check, if it is time to; whoever has strayed, or is asked, waits for a verdict."""
        if state.strayed or not (state.idle or self.due(state)):
            return state.strayed and (state.idle or not state.drift.under_way)
        inside = within(state.local.x, state.reference, self.threshold)
        state.counts["checks"] += 1
        state.counts["strays"] += not inside
        if inside and state.asked < 0:
            state.steps = 0
            return False
        state.strayed, state.asked = True, -1
        coordinator = state.place.members[0]
        if coordinator == state.place.rank:
            state.balance.strays[coordinator] = state.local.x.copy()
        else:
            actions.append(Tell(coordinator, Note("stray", state.next), state.local.x.tobytes()))
        return True

    def drifting(self, state: Watch) -> bool:
        """A verdict that is held up is as good as over once it is here, or an average of all is called for."""
        if state.begun:
            return super().drifting(state)
        return state.drift.under_way and state.verdict is None and not (state.draining or state.call)

    def held_up(self, state: Watch) -> bool:
        return state.strayed or super().held_up(state)

    def hold(self, state: Watch) -> Vector:
        return state.local.x.copy() if state.strayed else super().hold(state)

    def join(self, state: Watch) -> list[Tell]:
        state.strayed = False
        state.drift.drop()  # from the x that strayed: all of it is in this average
        state.noted = False
        return _announce(state) + self.begin(state, state.local.x, float(state.samples), keeps=True)

    def owing(self, state: Watch) -> bool:
        return state.apart and not state.finished and len(state.place.members) > 1

    def conclude(self, state: Watch) -> None:
        state.apart = state.steps > 0
        if state.trained or state.newcomers:
            state.group.mean(state.local.x)
        state.reference[:] = state.local.x
        self._note(state)

    def _note(self, state: Watch) -> None:
        """An average of all is over: who was in it, and what is void. At once, for the members may change."""
        if state.noted:
            return
        state.noted = True
        everybody = state.group.contributors == len(state.place.members)
        state.met |= set(state.place.members if everybody else state.late.began_with)
        state.callers -= state.met
        state.announced.clear()
        if state.asked <= state.group.completed:
            state.asked = -1
        # Who strayed before this average was in it, but for newcomers that came too late for it: they still wait.
        waiting = {rank: x for rank, x in state.balance.strays.items() if rank not in state.met}
        state.balance = DynamicCoordinator(waiting | state.early, random=state.balance.random)
        state.early = {}

    # ------------------------------------------------------------------------------------------------ messages

    def _hear(self, state: Watch, event: Heard) -> None:
        sender, kind, number = event.sender, event.note.kind, event.note.round
        current = number == state.next or not number or not state.rounds
        if kind == "full":
            if number:
                state.called = max(state.called, number)
            elif sender not in state.met:
                state.callers.add(sender)
            return
        if kind == "ask":
            if current or number > state.next:
                state.asked = number
            return
        if len(event.payload) != state.local.x.nbytes:
            raise MalformedMessage(f"a {kind} of {len(event.payload)} bytes; this model has {state.local.x.nbytes}")
        x = np.frombuffer(event.payload, np.float32)
        if kind == "stray":
            if number == state.next or (not number and sender not in state.met):
                state.balance.strays[sender] = x
            elif number > state.next:
                state.early[sender] = x
        elif kind == "adopt" and state.strayed and current:
            _take_verdict(state, x)
        elif kind == "reference" and not state.rounds:
            state.reference[:] = x

    def _move(self, state: Watch, place: MemberPlace) -> list[Tell]:
        """The members change. ``state.place`` is still the old one."""
        before, state.place = state.place, place
        state.callers &= set(place.members)
        state.balance.keep(place.members)
        if place.members[0] != before.members[0]:
            state.asked, state.early, state.balance = -1, {}, DynamicCoordinator()
            if state.strayed:
                state.callers.add(place.rank)  # nobody is left to judge us
        elif place.members[0] == place.rank:
            new, payload = sorted(set(place.members) - set(before.members)), state.reference.tobytes()
            return [Tell(rank, Note("reference"), payload) for rank in new] + _again(state)
        return _again(state)

    def _judge(self, state: Watch, actions: list[MethodAction]) -> None:
        """The coordinator's verdict about those who strayed, if it can be given."""
        match state.balance.verdict(state.reference, self.threshold, state.place.members):
            case Adopt(ranks, mean):
                state.counts["balanced"] += 1
                payload = mean.tobytes()
                others = [rank for rank in ranks if rank != state.place.rank]
                actions += [Tell(rank, Note("adopt", state.next), payload) for rank in others]
                if len(others) < len(ranks):
                    _take_verdict(state, mean)
            case Ask(ranks):
                actions += [Tell(rank, Note("ask", state.next)) for rank in ranks if rank != state.place.rank]
                if state.place.rank in ranks:
                    state.asked = state.next
            case Everybody():
                actions += _call(state)


def _take_verdict(state: Watch, mean: Vector) -> None:
    """Now, if the worker waits for it; else it trains, and x is its own until its next turn."""
    if state.turn:
        _adopt(state, mean)
    else:
        state.verdict = mean


def _adopt(state: Watch, mean: Vector) -> None:
    """Go on from the mean of those who strayed."""
    state.apart = state.drift.under_way
    with state.drift.kept(state.local.x):
        state.local.x[:] = mean
    state.strayed, state.idle, state.verdict = False, False, None
    state.steps = 0


def _call(state: Watch) -> list[Tell]:
    """For an average of all."""
    tells = _announce(state)
    state.called = max(state.called, state.next)
    if not state.next:
        state.callers.add(state.place.rank)
    return tells


def _announce(state: Watch) -> list[Tell]:
    """Tell everybody, once, that there is an average of all to join."""
    fresh = sorted(set(state.place.others) - state.announced)
    state.announced |= set(fresh)
    return [Tell(rank, Note("full", state.next)) for rank in fresh]


def _again(state: Watch) -> list[Tell]:
    """Who came since we called for an average of all has to know, too."""
    return _announce(state) if state.announced else []
