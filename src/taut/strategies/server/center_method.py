"""Base of methods around a ``Center``: train for some steps, exchange with the center, go on; no worker waits for steps.

Shared by `easgd` and the delayed form of `diloco`. A worker waits only for the answers to its own question, which the
communication threads of the holders give at once. If an answer does not come for long (its holder has died, and this is
not known yet), the worker trains on, and asks again after the answer. Steps after its last question are exchanged when
its data ends. The center is the final model.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from taut.strategies import api as m
from taut.strategies.server.center import Center


@dataclass
class CenterState:
    """A worker's state. ``steps``: since its last exchange."""

    local: m.Local
    center: Center
    steps: int = 0
    exchanges: int = 0
    turn: bool = False
    leaving: bool = False
    ended: bool = False
    finished: bool = False


class CenterMethod(m.Method):
    """A method around a center; subclasses define ``exchange`` and the parameter ``every``."""

    consensus = True
    concurrent = True
    lockstep = False
    drifts = True

    every: int

    @abstractmethod
    def exchange(self, state: Any) -> list[m.Tell]:
        """Exchange this worker's vector with the center."""

    def owing(self, state: Any) -> bool:
        """Return whether the others lack steps since the last exchange, or this worker's shards of the center."""
        return bool(not state.finished and (state.steps or state.center.asking or not state.center.left))

    def figures(self, state: Any) -> dict[str, float]:
        return {"exchanges": state.exchanges, **state.center.drift.figures()}

    def drifting(self, state: Any) -> bool:
        return bool(state.center.drift.under_way)

    def rounds_over(self, state: Any) -> int:
        return int(state.exchanges - state.center.asking)

    def on(self, state: Any, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        actions: list[m.MethodAction] = []
        center: Center = state.center
        match event:
            case m.Stepped(samples):
                state.turn = True
                state.steps += samples > 0
                if samples:
                    center.drift.stepped()
                center.resume()
            case m.Heard(sender, note, payload) if center.hears(note):
                actions += center.heard(sender, note, payload)
            case m.MembersChanged(membership):
                actions += center.members_changed(membership)
            case m.HeldUp() if state.turn and center.missing and not (center.drift.under_way or center.draining):
                center.let_go()
            case m.Ended() | m.Leaving():
                state.ended, state.leaving = True, isinstance(event, m.Leaving)
                center.resume()
            case m.Draining():
                center.draining = True
                center.resume()
            case m.Heard() | m.HeldUp():
                pass
        if not center.asking:
            center.drift.drop()
            if state.steps > 0 if state.ended else state.turn and state.steps >= self.every:
                state.steps, state.exchanges = 0, state.exchanges + 1
                actions += self.exchange(state)
            elif state.leaving and not (state.steps or center.left):
                actions += center.leave()
        actions += center.close()
        self._go_on(state, actions)
        return actions

    def _go_on(self, state: Any, actions: list[m.MethodAction]) -> None:
        center: Center = state.center
        # A draining worker waits for the end here, without idle turns.
        free = center.finished or not center.draining
        if state.turn and free and (center.drift.under_way or not center.asking):
            state.turn, center.training = False, not state.ended
            actions.append(m.Proceed())
        if center.finished and not state.finished:
            state.finished = True
            actions.append(m.Finished())
