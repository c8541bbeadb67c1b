"""Dynamic averaging: workers communicate only when one of them has strayed too far from the last common model.

    every b steps, each worker by itself:    |x_i - ref|^2 <= D  ?    then send nothing, and go on

A worker that violates it sends its x to the coordinator (the lowest rank) and waits. The coordinator *balances*: it takes
the mean of the workers that strayed; if |mean - ref|^2 <= D / 2, they go on from it, and the others are not involved.
If not, it asks as many other workers, drawn at random, for their x at their next check. Once this would be more than half
of all, all workers average (an all-reduce, weighted by samples), and the mean is the new ref.

While workers drift alike, this saves most of the traffic; D = 0 is ``averaging:every=b``. By default the run measures D:
every worker averages at its first check, and D = ``FACTOR`` |mean - ref|^2. A worker that joins later calls an average of
all at its first check, and learns D from it. Exchanged: x, not the optimizer's moments. One more vector per worker (ref),
and one at the coordinator for each worker being balanced. When the coordinator dies, workers that wait for its verdict
call for an average of all. A worker whose verdict, or average of all, is held up trains on, and x <- mean + (x - x_then)
when it comes (``overlapped_round.py``).
Paper: Kamp et al. 2018, "Efficient Decentralized Deep Learning by Dynamic Model Averaging".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from taut.collectives import named
from taut.errors import MalformedMessage, Misuse
from taut.specs import check_whole
from taut.strategies import api as m
from taut.strategies.allreduce.difference_group import group_of
from taut.strategies.periodic.dynamic_coordinator import DynamicCoordinator, within
from taut.strategies.periodic.periodic import Periodic, PeriodicState

KINDS = ("stray", "adopt", "ask", "full", "reference")
FIGURES = ("checks", "strays", "balanced", "messages")
AUTO = "auto"
FACTOR = 4.0


@dataclass
class DynamicState(PeriodicState):
    """A worker's state. Averages of all are numbered. A message about the next average carries its number; 0 if the
    sender has not taken part in any and cannot know it."""

    reference: m.Vector = None  # type: ignore[assignment]  # set by start
    threshold: float | None = None  # None: not measured yet
    strayed: bool = False  # the coordinator has our x, and this worker waits for its verdict
    apart: bool = False  # this worker trained since its x was last in a mean
    verdict: m.Vector | None = None  # a verdict that came while this worker trained on
    asked: int = -1  # the coordinator wants our x at the next check, before this average
    called: int = 0  # some worker is in this average of all
    callers: set[int] = field(default_factory=set)  # workers in their first average, of unknown number
    announced: set[int] = field(default_factory=set)  # workers that were told of the next average
    noted: bool = False  # our average is over, but not applied yet, since this worker trains
    met: set[int] = field(default_factory=set)  # workers that this one has averaged with
    balance: DynamicCoordinator = field(default_factory=DynamicCoordinator)  # used by the coordinator
    early: dict[int, m.Vector] = field(default_factory=dict)  # strays from after an average that is not over here
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FIGURES, 0))

    @property
    def next(self) -> int:
        """Return the number of the next average of all."""
        return self.group.completed + 1 if self.rounds or self.noted else 0

    @property
    def call(self) -> bool:
        return self.called > self.group.completed or bool(self.callers)


@dataclass(frozen=True)
class Dynamic(Periodic):
    """``--strategy dynamic:threshold=auto,every=10``.

    ``threshold``: D, on the squared distance, or ``auto``; ``every``: b, steps between two checks; ``schedule``: of the
    all-reduce.

    >>> import numpy as np
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(Dynamic(threshold=float("inf"), every=2), [np.zeros(1, np.float32) for _ in range(3)])
    >>> world.run(8)
    >>> world.messages
    0
    """

    name = "dynamic"
    info = m.StrategyInfo(m.Completeness.SELDOM, (), coded_kinds=("share",))  # it is meant for traffic, not for speed
    paper = "Kamp et al. 2018"
    concurrent = True  # the coordinator gives its verdicts while it trains

    threshold: float | str = AUTO
    every: int = 10
    schedule: str = "ring"

    def __post_init__(self) -> None:
        given = self.threshold
        if given != AUTO and (isinstance(given, str) or not given >= 0.0):
            remedy = "0 averages at every check, inf never does"
            raise Misuse(f"dynamic: threshold={given}", "auto, or a number of at least 0", remedy)
        check_whole(self, "every", 1, "so many steps between two checks")
        named(self.schedule)

    @property
    def shares_speeds(self) -> bool:
        return False  # workers that stay within the threshold wait for nobody

    def start(self, membership: m.Membership, local: m.Local) -> DynamicState:
        group = group_of(membership, local, self.schedule)
        threshold = None if isinstance(self.threshold, str) else self.threshold
        return DynamicState(local, membership, group, reference=local.x.copy(), threshold=threshold)

    def on(self, state: DynamicState, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        actions: list[m.MethodAction] = []
        if isinstance(event, m.Heard) and event.note.kind in KINDS:
            self._hear(state, event)
        elif isinstance(event, m.Stepped):
            state.apart = state.apart or event.samples > 0
            if state.verdict is not None:
                _adopt(state, state.verdict)
        elif isinstance(event, m.Leaving) and self.owing(state):
            actions += _call(state)
        elif isinstance(event, m.MembersChanged):
            actions += self._move(state, event.membership)
        actions += super().on(state, event, now)
        if state.begun and state.group.done:
            self._note(state)
        coordinates = state.membership.rank == state.membership.members[0]
        if coordinates and state.threshold is not None and not state.begun and not state.call:
            self._judge(state, state.threshold, actions)
            self._go_on(state, actions)
        state.counts["messages"] += sum(isinstance(action, m.Tell) for action in actions)
        return actions

    def figures(self, state: DynamicState) -> dict[str, float]:
        counts = {name: float(count) for name, count in state.counts.items()}
        measured = {} if state.threshold is None else {"threshold": state.threshold}
        return {"syncs": state.rounds, **measured, **counts, **state.drift.figures()}

    @property
    def summed_numbers(self) -> int:
        return super().summed_numbers + 2 * isinstance(self.threshold, str)

    # Checks and rounds.

    def wants(self, state: DynamicState) -> bool:
        return (state.idle or self.due(state)) and (state.draining or state.call or state.threshold is None)

    def holds(self, state: DynamicState, actions: list[m.MethodAction]) -> bool:
        """Check the distance, if it is time to; wait for a verdict after having strayed or being asked."""
        if state.strayed or not (state.idle or self.due(state)):
            return state.strayed and (state.idle or not state.drift.under_way)
        assert state.threshold is not None, "a worker without a threshold joins an average instead"
        inside = within(state.local.x, state.reference, state.threshold)
        state.counts["checks"] += 1
        state.counts["strays"] += not inside
        if inside and state.asked < 0:
            state.steps = 0
            return False
        state.strayed, state.asked = True, -1
        coordinator = state.membership.members[0]
        if coordinator == state.membership.rank:
            state.balance.strays[coordinator] = state.local.x.copy()
        else:
            actions.append(m.Tell(coordinator, m.Note("stray", state.next), state.local.x.tobytes()))
        return True

    def drifting(self, state: DynamicState) -> bool:
        """Return whether a verdict, or a round, is held up: no verdict is here, and no average of all is called for."""
        if state.begun:
            return super().drifting(state)
        return state.drift.under_way and state.verdict is None and not (state.draining or state.call)

    def held_up(self, state: DynamicState) -> bool:
        return state.strayed or super().held_up(state)

    def hold(self, state: DynamicState) -> m.Vector:
        return state.local.x.copy() if state.strayed else super().hold(state)

    def join(self, state: DynamicState) -> list[m.Tell]:
        state.strayed = False
        state.drift.drop()  # all of the x that strayed is in this average
        state.noted = False
        known = (state.threshold or 0.0, float(state.threshold is not None)) if isinstance(self.threshold, str) else ()
        return _announce(state) + self.begin(state, state.local.x, float(state.samples), *known, keeps=True)

    def owing(self, state: DynamicState) -> bool:
        return state.apart and not state.finished and len(state.membership.members) > 1

    def conclude(self, state: DynamicState) -> None:
        state.apart = state.steps > 0
        if state.trained or state.newcomers:
            state.group.mean(state.local.x)
        if state.threshold is None:
            state.threshold = self._measured(state)
        state.reference[:] = state.local.x
        self._note(state)

    def _measured(self, state: DynamicState) -> float | None:
        """Return the threshold of the workers that know it or, if none does, what the first average of all shows."""
        total, known = state.group.extra[2:4]
        if known:
            return total / known
        away = state.local.x - state.reference
        moved = float(np.dot(away, away))
        return FACTOR * moved if state.trained and 0.0 < moved < np.inf else None

    def _note(self, state: DynamicState) -> None:
        """Note at once that an average of all is over, with its members, and drop what it makes void."""
        if state.noted:
            return
        state.noted = True
        complete = state.group.contributors == len(state.membership.members)
        state.met |= set(state.membership.members if complete else state.late.began_with)
        state.callers -= state.met
        state.announced.clear()
        if state.asked <= state.group.completed:
            state.asked = -1
        # Workers that strayed before this average were in it, except newcomers that came too late: these still wait.
        waiting = {rank: x for rank, x in state.balance.strays.items() if rank not in state.met}
        state.balance = DynamicCoordinator(waiting | state.early, random=state.balance.random)
        state.early = {}

    # Messages.

    def _hear(self, state: DynamicState, event: m.Heard) -> None:
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

    def _move(self, state: DynamicState, membership: m.Membership) -> list[m.Tell]:
        """Handle a change of members. ``state.membership`` is still the old one."""
        before, state.membership = state.membership, membership
        state.callers &= set(membership.members)
        state.balance.keep(membership.members)
        if membership.members[0] != before.members[0]:
            state.asked, state.early, state.balance = -1, {}, DynamicCoordinator()
            if state.strayed:
                state.callers.add(membership.rank)  # the coordinator is gone
        elif membership.members[0] == membership.rank:
            new, payload = sorted(set(membership.members) - set(before.members)), state.reference.tobytes()
            return [m.Tell(rank, m.Note("reference"), payload) for rank in new] + _again(state)
        return _again(state)

    def _judge(self, state: DynamicState, threshold: float, actions: list[m.MethodAction]) -> None:
        """Give the coordinator's verdict about the workers that strayed, if possible."""
        verdict = state.balance.verdict(state.reference, threshold, state.membership.members)
        if verdict is None:
            return
        mine, others = (
            state.membership.rank in verdict.ranks,
            [rank for rank in verdict.ranks if rank != state.membership.rank],
        )
        if verdict.mean is not None:
            state.counts["balanced"] += 1
            payload = verdict.mean.tobytes()
            actions += [m.Tell(rank, m.Note("adopt", state.next), payload) for rank in others]
            if mine:
                _take_verdict(state, verdict.mean)
        elif verdict.ranks:
            actions += [m.Tell(rank, m.Note("ask", state.next)) for rank in others]
            state.asked = state.next if mine else state.asked
        else:
            actions += _call(state)


def _take_verdict(state: DynamicState, mean: m.Vector) -> None:
    """Adopt the mean now, if the worker waits for it; else keep it for the worker's next turn."""
    if state.turn:
        _adopt(state, mean)
    else:
        state.verdict = mean


def _adopt(state: DynamicState, mean: m.Vector) -> None:
    """Go on from the mean of the workers that strayed."""
    state.apart = state.drift.under_way
    with state.drift.kept(state.local.x):
        state.local.x[:] = mean
    state.strayed, state.idle, state.verdict = False, False, None
    state.steps = 0


def _call(state: DynamicState) -> list[m.Tell]:
    tells = _announce(state)
    state.called = max(state.called, state.next)
    if not state.next:
        state.callers.add(state.membership.rank)
    return tells


def _announce(state: DynamicState) -> list[m.Tell]:
    """Tell all workers, once each, that there is an average of all to join."""
    fresh = sorted(set(state.membership.others) - state.announced)
    state.announced |= set(fresh)
    return [m.Tell(rank, m.Note("full", state.next)) for rank in fresh]


def _again(state: DynamicState) -> list[m.Tell]:
    """Tell newcomers of the average of all that was called for."""
    return _announce(state) if state.announced else []
