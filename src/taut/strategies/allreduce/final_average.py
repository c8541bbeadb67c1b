"""The last average: after the drain, replicas that may differ become one.

    x_i  <-  (1/n) sum_j x_j        over all members j whose weights are finite

One round of a ``Group``, whatever method was trained with, and then everybody holds the same bits. It is a method like
the others, so the runtime (``worker/finish.py``) and a simulator drive the same object. How far each replica was from
the mean is measured on the way: that is the consensus distance, exact.

Whoever has the mean takes part in no other round. A member that comes late, or that lost a piece of the round to a death,
tells its last round, is answered *settled*, and asks one of those who answered for the mean. As a round needs everybody,
none can end with another mean while somebody holds the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies import api as m
from taut.strategies.allreduce.group import Group

FINAL_AVERAGE_PART = 1 << 30  # of all its messages: they may arrive while the receiver's training method still drains


@dataclass
class FinalAverageState:
    """A worker's state. ``distance``: |x - mean| / |mean| of its replica, None before the mean is known."""

    local: m.Local
    membership: m.Membership
    group: Group
    begun: bool = False
    averaged: bool = False
    agreed: bool = False  # there was a mean: not all replicas were broken
    distance: float | None = None
    left_out: bool = False  # its weights were not finite, and do not count
    ahead: set[int] = field(default_factory=set)  # those who have the mean
    asked: int | None = None  # one of them


@dataclass(frozen=True)
class FinalAverage(m.Method):
    """Not a strategy to train with: ``--finish average`` runs it at the end. ``schedule``: of the all-reduce.

    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(FinalAverage(), [np.full(2, float(rank), np.float32) for rank in range(4)])
    >>> world.finish()
    >>> [x.tolist() for x in world.vectors()]
    [[1.5, 1.5], [1.5, 1.5], [1.5, 1.5], [1.5, 1.5]]
    """

    name = "settlement"
    consensus = True
    lockstep = False
    schedule: str = "ring"

    def start(self, membership: m.Membership, local: m.Local) -> FinalAverageState:
        return FinalAverageState(local, membership, Group(membership, len(local.x), self.schedule, FINAL_AVERAGE_PART))

    def on(self, state: FinalAverageState, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        actions: list[m.MethodAction] = []
        match event:
            case m.Stepped():
                actions.append(m.Proceed())
            case m.Draining() if not state.begun:
                actions += self._begin(state)
            case m.Heard(sender, note, payload) if sender in state.membership.members:
                self._heard(state, sender, note, payload, actions)
            case m.MembersChanged(membership):
                state.membership = membership
                state.ahead &= set(membership.members)
                if state.asked not in membership.members:
                    state.asked = None
                if not state.averaged:
                    actions += state.group.members_changed(membership)
            case _:
                pass
        if state.begun and not state.averaged:
            self._end(state, actions)
        return actions

    def _begin(self, state: FinalAverageState) -> list[m.Tell]:
        x = state.local.x
        state.begun = True
        state.left_out = not bool(np.isfinite(x).all())
        values = np.zeros_like(x) if state.left_out else x  # 0 * nan is nan
        return state.group.begin(values, float(not state.left_out), keeps=True)

    def _heard(
        self, state: FinalAverageState, sender: int, note: m.Note, payload: bytes, actions: list[m.MethodAction]
    ) -> None:
        x = state.local.x
        match note.kind:
            case "settled":
                state.ahead.add(sender)
            case "want" if state.averaged:
                actions.append(m.Tell(sender, m.Note("mean", int(state.agreed), FINAL_AVERAGE_PART), x.tobytes()))
            case "mean" if sender == state.asked and not state.averaged:
                if len(payload) != x.nbytes:
                    raise MalformedMessage(f"a mean of {len(payload)} bytes; this model has {x.nbytes}")
                _take_mean(state, np.frombuffer(payload, np.float32) if note.round else None)
                actions.append(m.Finished())
            case "stand" if state.averaged:
                actions.append(m.Tell(sender, m.Note("settled", part=FINAL_AVERAGE_PART)))
            case _ if state.group.hears(note) and not state.averaged:
                actions += state.group.heard(sender, note, payload)

    def _end(self, state: FinalAverageState, actions: list[m.MethodAction]) -> None:
        """Take the mean if the round is done; ask for it if somebody has it."""
        if state.group.done:
            mean = np.empty_like(state.local.x)
            _take_mean(state, mean if state.group.mean(mean) else None)
            actions.append(m.Finished())
        elif state.ahead and state.asked is None:
            state.asked = min(state.ahead)
            actions.append(m.Tell(state.asked, m.Note("want", part=FINAL_AVERAGE_PART)))


def _take_mean(state: FinalAverageState, mean: m.Vector | None) -> None:
    """Measure how far off this replica was, and take the mean (None: no replica was fit to be averaged)."""
    state.averaged = True
    if mean is None:
        return
    x = state.local.x
    state.agreed = True
    if not state.left_out:
        norm = float(np.linalg.norm(mean))
        apart = float(np.linalg.norm(x - mean))
        state.distance = apart / norm if norm else apart
    x[:] = mean
