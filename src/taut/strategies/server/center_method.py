"""Methods around a ``Center``: train for a while, exchange with the centre, go on; nobody waits for anybody's steps.

What `easgd` and the delayed form of `diloco` have in common. A worker waits only for the answers to its own question,
which the communication threads of the holders give at once. Where one does not come for long (its holder has died, and
nobody knows yet), the worker trains on, and asks again when it is there. What it did after its last question is brought
in when its data ends. The centre is the model that comes out.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from taut.core.events import Ended
from taut.strategies.api import (
    Draining,
    Finished,
    Heard,
    HeldUp,
    Leaving,
    Local,
    Method,
    MethodAction,
    MethodEvent,
    Placed,
    Proceed,
    Stepped,
    Tell,
)
from taut.strategies.server.center import Center


@dataclass
class CenterState:
    """A worker's state. ``steps``: since its last exchange."""

    local: Local
    centre: Center
    steps: int = 0
    exchanges: int = 0
    turn: bool = False
    leaving: bool = False
    ended: bool = False
    finished: bool = False


class CenterMethod(Method):
    """``exchange`` makes a method of it; ``every`` is one of its parameters."""

    consensus: ClassVar[bool] = True
    concurrent: ClassVar[bool] = True
    lockstep: ClassVar[bool] = False
    drifts: ClassVar[bool] = True

    every: int

    @abstractmethod
    def exchange(self, state: Any) -> list[Tell]:
        """Ask the centre."""

    def owing(self, state: Any) -> bool:
        """What it did since its last exchange goes into another one, then what it holds of the centre to the others."""
        return bool(not state.finished and (state.steps or state.centre.asking or not state.centre.left))

    def figures(self, state: Any) -> dict[str, float]:
        return {"exchanges": float(state.exchanges), **state.centre.drift.figures()}

    def drifting(self, state: Any) -> bool:
        return bool(state.centre.drift.under_way)

    def rounds_over(self, state: Any) -> int:
        return int(state.exchanges - state.centre.asking)

    def on(self, state: Any, event: MethodEvent, now: float) -> list[MethodAction]:
        actions: list[MethodAction] = []
        centre: Center = state.centre
        match event:
            case Stepped(samples):
                state.turn = True
                state.steps += samples > 0
                if samples:
                    centre.drift.stepped()
                centre.resume()
            case Heard(sender, note, payload) if centre.hears(note):
                actions += centre.heard(sender, note, payload)
            case Placed(place):
                actions += centre.placed(place)
            case HeldUp() if state.turn and centre.missing and not (centre.drift.under_way or centre.draining):
                centre.let_go()
            case Ended() | Leaving():
                state.ended, state.leaving = True, isinstance(event, Leaving)
                centre.resume()
            case Draining():
                centre.draining = True
                centre.resume()
            case Heard() | HeldUp():
                pass
        if not centre.asking:
            centre.drift.drop()
            if state.steps > 0 if state.ended else state.turn and state.steps >= self.every:
                actions += self._exchange(state)
            elif state.leaving and not (state.steps or centre.left):
                actions += centre.leave()
        actions += centre.close()
        self._go_on(state, actions)
        return actions

    def _go_on(self, state: Any, actions: list[MethodAction]) -> None:
        centre: Center = state.centre
        # While it drains, a worker has nothing to do but to wait for the end: it is not sent round in idle turns.
        free = centre.finished or not centre.draining
        if state.turn and free and (centre.drift.under_way or not centre.asking):
            state.turn, centre.training = False, not state.ended
            actions.append(Proceed())
        if centre.finished and not state.finished:
            state.finished = True
            actions.append(Finished())

    def _exchange(self, state: Any) -> list[Tell]:
        state.steps = 0
        state.exchanges += 1
        return self.exchange(state)
