"""Base of the methods in rounds: train for some steps, then average a vector over all workers, again and again.

Shared by `averaging`, `fedavg`, `diloco` and `admm`:

- A worker trains until it is ``due``, joins the next round of the ``Group`` and waits for it. (A method may let it train
  on for ``overlap`` steps meanwhile.)
- A worker without data joins at once, with almost no weight; the others join after their steps. So no worker waits for
  more than one round, and a round in which no worker trained is the plain mean of all. (The worker lets one turn pass
  before, since its next data may be on the way, and joining now would make for a short contribution.)
- A round may be held up: a worker has died, and this is not known yet, or it is cut off. Then the others train on
  (``overlapped_round.py``); when the round is over, each adds its steps since to the result.
- The contribution of a draining worker says so. The first round in which all contributors drain is the last one: all see
  this, and end with the same bits. Workers that join still later are given the model.

The ``Group`` handles deaths and joins in mid-round. With a compressor, rounds are of differences from the last common
weights (``difference_group.py``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from taut.errors import Misuse
from taut.strategies import api as m
from taut.strategies.allreduce.difference_group import TOKEN, DifferenceGroup
from taut.strategies.allreduce.final_model import KIND, FinalModelForJoiners
from taut.strategies.allreduce.group import Group
from taut.strategies.allreduce.robust_group import RobustGroup
from taut.strategies.allreduce.round_speeds import RoundSpeeds
from taut.strategies.periodic.overlapped_round import OverlappedRound


@dataclass
class PeriodicState:
    """A worker's state. ``steps`` and ``samples``: since it joined its last round; ``moved``: steps since it joined
    the round under way, until that round was held up."""

    local: m.Local
    membership: m.Membership
    group: Group
    steps: int = 0
    samples: int = 0
    moved: int = 0
    turn: bool = False  # the worker waits for an answer, and the method may change x
    idles: int = 0  # turns without data in a row
    idle: bool = False  # no data in this turn, and none expected
    begun: bool = False  # a round is under way
    lent: bool = False  # this worker contributed no step to it
    ended: bool = False
    draining: bool = False
    finished: bool = False
    rounds: int = 0
    spoilt: int = 0  # rounds whose sum was not finite
    speed: float = 0.0  # of this worker, in samples per second of computing; 0: unknown
    told: float = 0.0  # the speed that it gave to the last round
    speeds: RoundSpeeds | None = None
    late: FinalModelForJoiners = field(default_factory=FinalModelForJoiners)
    drift: OverlappedRound = field(default_factory=OverlappedRound)

    coded_reference: m.Vector | None = None  # of the group, where a codec writes differences from it
    coded_own: m.Vector | None = None  # what the others know of this worker's own vector, where that is kept

    def __post_init__(self) -> None:
        self.late.by_majority = isinstance(self.group, RobustGroup)
        if isinstance(self.group, DifferenceGroup):
            self.coded_reference, self.coded_own = self.group.reference, self.group.known

    @property
    def newcomers(self) -> bool:
        """Return whether the finished round was some worker's first, so that it lacks what the others share."""
        return self.group.extra[0] > 0.0

    @property
    def trained(self) -> bool:
        """Return whether any contributor to the finished round had trained since its last one."""
        return self.group.extra[1] > 0.0


class Periodic(m.Method):
    """A method in rounds; subclasses define ``join`` and ``conclude``. ``every``: local steps between two rounds."""

    every: int

    consensus = True
    turns_until_finished = True
    drifts = True
    codecs: ClassVar[tuple[str, ...]] = ("dense", m.ANY_FAITHFUL)
    robust: str = "none"

    def due(self, state: Any) -> bool:
        """Return whether a worker that has data is to join a round now."""
        return bool(state.steps >= self.every)

    def wants(self, state: Any) -> bool:
        """Return whether this worker is to join a round now."""
        return state.idle or self.due(state)

    def holds(self, state: Any, actions: list[m.MethodAction]) -> bool:
        """Return whether the worker must wait for something else than a round; ``actions`` may ask for it."""
        return False

    @abstractmethod
    def join(self, state: Any) -> list[m.Tell]:
        """Contribute to the next round, by ``begin``."""

    @abstractmethod
    def conclude(self, state: Any) -> None:
        """Apply the result of the finished round to x."""

    def waits(self, state: Any) -> bool:
        """Return whether a worker with data must wait for the round under way, unless that is held up."""
        return True

    def hold(self, state: Any) -> m.Vector:
        """Return a copy of x for a worker that trains on, and release x if it was contributed itself."""
        group: Group = state.group
        return group.let_go()

    def drifting(self, state: Any) -> bool:
        return bool(state.drift.under_way and not state.group.done)

    def rounds_over(self, state: Any) -> int:
        return int(state.rounds)

    def agreed(self, state: Any) -> bool:
        """Return whether the finished round was the last one, as all members can see."""
        return bool(state.group.ending == state.group.contributors)

    def figures(self, state: Any) -> dict[str, float]:
        coded = {"coded": 1.0} if state.coded_reference is not None else {}
        return {"rounds": state.rounds, **coded, **state.drift.figures()}

    def owing(self, state: Any) -> bool:
        """Return whether steps since the last round are still to go into the next one."""
        contributes = state.begun and not state.lent
        return bool(not state.finished and len(state.membership.members) > 1 and (state.steps or contributes))

    def dispensable(self, state: Any) -> bool:
        """Return whether this worker contributed no steps to the round under way."""
        return bool(state.begun and state.lent and not state.drift.under_way)

    @property
    def shares_speeds(self) -> bool:
        return True

    @property
    def summed_numbers(self) -> int:
        return 4 if self.shares_speeds else 2

    def check_codec(self, codec: str) -> None:
        if codec != "dense" and self.robust != "none":
            given, expected = f"codec {codec!r} with {self.name}:robust={self.robust}", "dense: it compares whole vectors"
            raise Misuse(given, expected, "leave robust out, or the codec")

    def map_groups(self, state: Any, made: Callable[[Any], Any]) -> None:
        state.group = made(state.group)

    def begin(
        self, state: PeriodicState, values: m.Vector, weight: float, *extra: float, keeps: bool = False
    ) -> list[m.Tell]:
        """Join the next round with ``weight`` * ``values``; a weight of 0 (no training) counts as almost nothing."""
        state.lent = not weight
        numbers = (float(state.rounds == 0), float(weight > 0.0), *extra, *self.speed_of(state))
        return state.group.begin(values, weight or TOKEN, state.draining, numbers, keeps=keeps)

    def speed_of(self, state: PeriodicState) -> tuple[float, ...]:
        """Return what a round sums of this worker's speed: the last of its numbers."""
        state.told = state.speed
        return (state.speed, float(state.speed > 0.0)) if self.shares_speeds else ()

    def on(self, state: Any, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        actions: list[m.MethodAction] = []
        match event:
            case m.Stepped(samples):
                self._count(state, samples)
            case m.Heard(sender, note, payload) if state.group.hears(note):
                if not state.late.left:
                    actions += state.group.heard(sender, note, payload)
                    actions += state.group.refused()
            case m.Heard(sender, m.Note(kind=kind), payload) if kind == KIND:
                if sender in state.membership.members and not state.finished:
                    state.late.hear(payload, len(state.local.x), sender, state.draining, self._perhaps_late(state))
            case m.MembersChanged(membership):
                state.membership = membership
                actions += (
                    state.group.members_changed(membership) if state.late.stays() else state.group.testify(membership)
                )
            case m.Ended() | m.Leaving():
                state.ended = True
            case m.Draining():
                state.draining = True
            case m.HeldUp() if state.turn and not (state.draining or state.drift.under_way) and self.held_up(state):
                state.drift.begin([self.hold(state)])
                state.idle = False
            case m.Heard() | m.HeldUp():
                pass
        self._go_on(state, actions)
        if state.finished:
            actions += state.late.hand_on(state.membership, state.local.x)
        return actions

    def held_up(self, state: Any) -> bool:
        """Return whether the worker waits, in its turn, for another worker's part in a round."""
        return bool(state.begun and not state.group.done)

    def _count(self, state: Any, samples: int) -> None:
        """Begin a turn. The first one without data is let pass, since data is probably on its way; the second is idle."""
        state.turn = True
        state.idles = 0 if samples else state.idles + 1
        state.idle = state.idles > (0 if state.ended or state.draining else 1)
        state.samples += samples
        if samples:
            state.steps += 1
            state.moved += not state.drift.under_way
            state.drift.stepped()

    def _perhaps_late(self, state: Any) -> bool:
        """Return whether the last round may have been completed before this worker came, as far as it knows."""
        return not (state.rounds or state.group.founder)

    def _go_on(self, state: Any, actions: list[m.MethodAction]) -> None:
        if state.draining and state.group.founder is False and self._perhaps_late(state):
            state.late.take(state.membership)
        if state.late.handed is not None:
            self._end_late(state, actions)
            return
        while state.turn:
            if state.begun:
                if state.idle or self.waits(state):
                    if state.group.done:
                        self._conclude(state, actions)
                        continue
                    if state.idle or not state.drift.under_way:
                        return
            elif not state.finished:
                if self.wants(state):
                    self._join(state, actions)
                    continue
                if self.holds(state, actions):
                    return
            state.turn = False
            actions.append(m.Proceed())

    def _join(self, state: Any, actions: list[m.MethodAction]) -> None:
        state.begun, state.moved = True, 0
        state.late.began_with = state.membership.members
        actions += self.join(state)
        state.steps = state.samples = 0

    def _conclude(self, state: Any, actions: list[m.MethodAction]) -> None:
        state.begun = state.idle = False
        with state.drift.kept(state.local.x):
            self.conclude(state)
        if self.shares_speeds:
            total, known = state.group.extra[-2:]
            state.speeds = RoundSpeeds(total, known, state.group.contributors, state.told)
        state.rounds += 1
        if state.draining and self.agreed(state):
            state.finished = True
            actions.append(m.Finished())

    def _end_late(self, state: Any, actions: list[m.MethodAction]) -> None:
        """End with the model that was given to this worker, after the others have ended without it."""
        if state.turn:
            state.turn = False
            actions.append(m.Proceed())
        if state.draining and not state.finished:
            state.local.x[:] = state.late.handed
            state.finished = True
            actions.append(m.Finished())
