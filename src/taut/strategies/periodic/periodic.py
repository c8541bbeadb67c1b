"""Methods in rounds: train for a while, then average something with everybody, over and over.

What `averaging`, `fedavg`, `diloco` and `admm` have in common, and all of their waiting:

- A worker trains until it is ``due``, joins the next round of the ``Group`` and waits for it. (A method may let it train
  on for ``overlap`` steps meanwhile.)
- A worker without data joins at once, with next to no weight; the others come after their steps. So nobody waits for
  more than one round, and a round in which nobody trained is the plain mean of all. (It lets one turn pass before, for
  its next data may just be on the way, and what it has done by then would make a short contribution.)
- A round may be held up: somebody has died, and nobody knows yet, or is cut off. Then the worker trains on
  (``overlapped_round.py``); when the round is over, what it has moved by since is added to the outcome.
- A worker that drains says so in its contribution. The first round in which all contributors drain is the last one:
  everybody sees it, and ends with the same bits. Who comes still later is handed the model.

Deaths and joins in mid-round are the ``Group``'s affair.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from taut.core.events import Ended
from taut.core.messages import Note
from taut.strategies.allreduce.final_model import KIND, FinalModelForJoiners
from taut.strategies.allreduce.group import Group
from taut.strategies.api import (
    Draining,
    Finished,
    Heard,
    HeldUp,
    Leaving,
    Local,
    MemberPlace,
    Method,
    MethodAction,
    MethodEvent,
    Placed,
    Proceed,
    Stepped,
    Tell,
)
from taut.strategies.periodic.overlapped_round import OverlappedRound

if TYPE_CHECKING:
    from taut.strategies.api import Vector

# The weight of who has not trained: far below the rounding of any weight of samples, yet enough to divide by.
TOKEN = 2.0**-20


@dataclass
class Period:
    """A worker's state. ``steps`` and ``samples``: since it joined its last round; ``moved``: steps since it joined the
    round that is under way, up to when that was held up."""

    local: Local
    place: MemberPlace
    group: Group
    steps: int = 0
    samples: int = 0
    moved: int = 0
    turn: bool = False  # the worker waits for our answer, and x is ours
    idles: int = 0  # turns without data in a row
    idle: bool = False  # in this turn it has no data, and none is to be expected
    begun: bool = False  # a round is under way
    lent: bool = False  # without a step of ours in it
    ended: bool = False
    draining: bool = False
    finished: bool = False
    rounds: int = 0
    spoilt: int = 0  # whose sum was not finite
    late: FinalModelForJoiners = field(default_factory=FinalModelForJoiners)
    drift: OverlappedRound = field(default_factory=OverlappedRound)

    @property
    def newcomers(self) -> bool:
        """Whether the round that is done was somebody's first: what the others share from earlier ones, it does not."""
        return self.group.extra[0] > 0.0

    @property
    def trained(self) -> bool:
        """Whether any contributor to the round that is done had trained since its last one."""
        return self.group.extra[1] > 0.0


class Periodic(Method):
    """``due``, ``join`` and ``conclude`` make a method of it."""

    consensus: ClassVar[bool] = True
    turns_until_finished: ClassVar[bool] = True
    drifts: ClassVar[bool] = True

    @abstractmethod
    def due(self, state: Any) -> bool:
        """Whether a worker that has data is to join a round now."""

    def wants(self, state: Any) -> bool:
        """Whether this worker is to join a round now."""
        wants: bool = state.idle or self.due(state)
        return wants

    def holds(self, state: Any, actions: list[MethodAction]) -> bool:
        """Whether the worker has to wait although no round is under way, for something that ``actions`` may ask for."""
        return False

    @abstractmethod
    def join(self, state: Any) -> list[Tell]:
        """Contribute to the next round, by ``begin``."""

    @abstractmethod
    def conclude(self, state: Any) -> None:
        """The round is over: take what it brought. x is ours."""

    def waits(self, state: Any) -> bool:
        """Whether a worker with data has to wait for the round under way before its next step, if that is not held up."""
        return True

    def hold(self, state: Any) -> Vector:
        """A copy of x for a worker that trains on. One that contributed x itself, which it was to leave as it is, lets go
        of it."""
        x: Vector = state.group.let_go()
        return x

    def drifting(self, state: Any) -> bool:
        return bool(state.drift.under_way and not state.group.done)

    def rounds_over(self, state: Any) -> int:
        return int(state.rounds)

    def agreed(self, state: Any) -> bool:
        """Whether the round that is over was the last one, as everybody can see."""
        ending: bool = state.group.ending == state.group.contributors
        return ending

    def figures(self, state: Any) -> dict[str, float]:
        return {"rounds": float(state.rounds), **state.drift.figures()}

    def owing(self, state: Any) -> bool:
        """What it did since its last round goes into the next one."""
        contributes = state.begun and not state.lent
        return bool(not state.finished and len(state.place.members) > 1 and (state.steps or contributes))

    def dispensable(self, state: Any) -> bool:
        """Who has not trained since its last round only lends its presence to this one."""
        return bool(state.begun and state.lent and not state.drift.under_way)

    @property
    def summed_numbers(self) -> int:
        return 2

    def begin(self, state: Period, values: Vector, weight: float, *extra: float, keeps: bool = False) -> list[Tell]:
        """Join the next round with ``weight`` * ``values``. 0: this worker did not train, and counts for next to none."""
        state.lent = not weight
        numbers = (float(state.rounds == 0), float(weight > 0.0), *extra)
        return state.group.begin(values, weight or TOKEN, state.draining, numbers, keeps=keeps)

    def on(self, state: Any, event: MethodEvent, now: float) -> list[MethodAction]:
        actions: list[MethodAction] = []
        match event:
            case Stepped(samples):
                self._count(state, samples)
            case Heard(sender, note, payload) if state.group.hears(note):
                if not state.late.left:
                    actions += state.group.heard(sender, note, payload)
                    actions += state.group.refused()
            case Heard(sender, Note(kind=kind), payload) if kind == KIND:
                if sender in state.place.members and not state.finished:
                    state.late.hear(payload, len(state.local.x), sender, state.draining, self._perhaps_late(state))
            case Placed(place):
                state.place = place
                actions += state.group.placed(place) if state.late.stays() else state.group.testify(place)
            case Ended() | Leaving():
                state.ended = True
            case Draining():
                state.draining = True
            case HeldUp() if state.turn and not (state.draining or state.drift.under_way) and self.held_up(state):
                state.drift.begin([self.hold(state)])
                state.idle = False
            case Heard() | HeldUp():
                pass
        self._go_on(state, actions)
        if state.finished:
            actions += state.late.hand_on(state.place, state.local.x)
        return actions

    def held_up(self, state: Any) -> bool:
        """Whether what the worker waits for, in its turn, is somebody else's part in a round."""
        return bool(state.begun and not state.group.done)

    def _count(self, state: Any, samples: int) -> None:
        """A turn begins. One without data is let pass: most likely data is on its way. The second one is idle."""
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

    def _go_on(self, state: Any, actions: list[MethodAction]) -> None:
        """Whatever can be done in this turn."""
        if state.draining and state.group.founder is False and self._perhaps_late(state):
            state.late.take(state.place)
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
            actions.append(Proceed())

    def _join(self, state: Any, actions: list[MethodAction]) -> None:
        state.begun, state.moved = True, 0
        state.late.began_with = state.place.members
        actions += self.join(state)
        state.steps = state.samples = 0

    def _conclude(self, state: Any, actions: list[MethodAction]) -> None:
        state.begun = state.idle = False
        with state.drift.kept(state.local.x):
            self.conclude(state)
        state.rounds += 1
        if state.draining and self.agreed(state):
            state.finished = True
            actions.append(Finished())

    def _end_late(self, state: Any, actions: list[MethodAction]) -> None:
        """The others have ended without us, and the model is here."""
        if state.turn:
            state.turn = False
            actions.append(Proceed())
        if state.draining and not state.finished:
            state.local.x[:] = state.late.handed
            state.finished = True
            actions.append(Finished())
