"""Methods around a ``Centre``: train for a while, exchange with the centre, go on; nobody waits for anybody's steps.

What `easgd` and the delayed form of `diloco` have in common. A worker waits only for the answers to its own question,
which the communication threads of the holders give at once. What it did after its last question is brought in when its
data ends. The centre is the model that comes out.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from taut.core.events import Ended
from taut.strategies.centre import Centre
from taut.strategies.method import (
    Draining,
    Finished,
    Heard,
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


@dataclass
class Orbit:
    """A worker's state. ``steps``: since its last exchange."""

    local: Local
    centre: Centre
    steps: int = 0
    exchanges: int = 0
    turn: bool = False
    leaving: bool = False
    finished: bool = False


class Centred(Method):
    """``exchange`` makes a method of it; ``every`` is one of its parameters."""

    consensus: ClassVar[bool] = True
    concurrent: ClassVar[bool] = True
    lockstep: ClassVar[bool] = False

    every: int

    @abstractmethod
    def exchange(self, state: Any) -> list[Tell]:
        """Ask the centre."""

    def owing(self, state: Any) -> bool:
        """What it did since its last exchange goes into another one, then what it holds of the centre to the others."""
        return bool(not state.finished and (state.steps or state.centre.missing or not state.centre.left))

    def figures(self, state: Any) -> dict[str, float]:
        return {"exchanges": float(state.exchanges)}

    def on(self, state: Any, event: MethodEvent, now: float) -> list[MethodAction]:
        actions: list[MethodAction] = []
        centre: Centre = state.centre
        match event:
            case Stepped(samples):
                state.turn = True
                state.steps += samples > 0
                if state.steps >= self.every:
                    actions += self._exchange(state)
            case Heard(sender, note, payload) if centre.hears(note):
                actions += centre.heard(sender, note, payload)
            case Placed(place):
                actions += centre.placed(place)
            case Ended() if state.steps and not centre.missing:
                actions += self._exchange(state)
            case Leaving():
                state.leaving = True
            case Draining():
                centre.draining = True
            case Heard() | Ended():
                pass
        if state.leaving and not centre.missing and not centre.left:
            actions += self._exchange(state) if state.steps else centre.leave()
        actions += centre.close()
        # While it drains, a worker has nothing to do but to wait for the end: it is not sent round in idle turns.
        if state.turn and not centre.missing and (centre.finished or not centre.draining):
            state.turn = False
            actions.append(Proceed())
        if centre.finished and not state.finished:
            state.finished = True
            actions.append(Finished())
        return actions

    def _exchange(self, state: Any) -> list[Tell]:
        state.steps = 0
        state.exchanges += 1
        return self.exchange(state)
