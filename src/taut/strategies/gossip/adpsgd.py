"""AD-PSGD: asynchronous pairwise averaging. No worker ever waits.

    i, after its step:       pick a random neighbour j, send x_i, train on
    j, when x_i arrives:     d = (x_i - x_j) / 2;   x_j += d;   answer d
    i, when d arrives:       x_i -= d

The two changes cancel, so the sum over all workers is conserved, whatever steps both made meanwhile. The gradient that i
adds in between was taken at the older copy, as published. The paper makes each averaging atomic and splits the workers
into an active and a passive half, lest two wait for each other; here no worker holds a lock or waits for the answer, so
any graph will do. At most one question of a worker's own is under way. The optimizer's moments are not exchanged.
Paper: Lian et al. 2018, "Asynchronous decentralized parallel stochastic gradient descent".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from taut.core.splitmix import hash_bits
from taut.specs import check_whole
from taut.strategies import api as m
from taut.strategies.gossip.neighbour_rounds import check_length, finish


@dataclass
class ADPSGDState:
    """A worker's state. ``asked``: the neighbour whose answer is under way, and the number of the question."""

    local: m.Local
    membership: m.Membership
    turns: int = 0
    asked: tuple[int, int] | None = None
    left: set[int] = field(default_factory=set)
    taken_leave: set[int] = field(default_factory=set)
    draining: bool = False
    averaged: int = 0
    forgotten: int = 0  # questions to workers that are gone
    apart: bool = False  # this worker trained since it last asked
    leaving: bool = False


@dataclass(frozen=True)
class ADPSGD(m.Method):
    """``--strategy adpsgd --topology ring``. ``every``: ask after every so many steps. ``seed``: of the random choices.

    >>> import numpy as np
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(ADPSGD(), [np.full(1, float(rank), np.float32) for rank in range(4)], topology="ring")
    >>> world.run(60)
    >>> round(float(world.mean()[0]), 5)
    1.5
    """

    name = "adpsgd"
    info = m.StrategyInfo(m.Completeness.NEIGHBOURS, (m.Variant(topologies=("ring", "")),))
    paper = "Lian et al. 2018"
    returns = "mix"
    lockstep = False
    every: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "every", 1)
        check_whole(self, "seed", 0)

    def start(self, membership: m.Membership, local: m.Local) -> ADPSGDState:
        return ADPSGDState(local, membership)

    def on(self, state: ADPSGDState, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        actions: list[m.MethodAction] = []
        match event:
            case m.Stepped(samples):
                state.apart = state.apart or samples > 0
                self._ask(state, actions)
                actions.append(m.Proceed())
            case m.Leaving():
                state.leaving = True
            case m.Heard(sender, m.Note(kind="bye"), _):
                state.left.add(sender)
            case m.Heard(sender, m.Note(kind="ask", round=number), payload):
                check_length(event, state.local)
                x = state.local.x
                half = (np.frombuffer(payload, np.float32) - x) * np.float32(0.5)
                x += half
                actions.append(m.Tell(sender, m.Note("answer", number), half.tobytes()))
            case m.Heard(sender, note, payload):
                check_length(event, state.local)
                if state.asked == (sender, note.round):
                    x = state.local.x
                    x -= np.frombuffer(payload, np.float32)
                    state.asked = None
                    state.averaged += 1
            case m.MembersChanged(membership):
                state.membership = membership
                if state.asked is not None and state.asked[0] not in membership.members:
                    state.asked = None
                    state.forgotten += 1
                    state.apart = True
            case m.Draining():
                state.draining = True
            case m.Ended():
                pass  # others may still ask
        if state.leaving and state.apart:
            self._ask(state, actions)
        if state.draining and state.asked is None:
            finish(state, actions)
        return actions

    def _ask(self, state: ADPSGDState, actions: list[m.MethodAction]) -> None:
        state.turns += 1
        if state.asked is not None or state.draining or (state.turns % self.every and not state.leaving):
            return
        membership = state.membership
        partners = [other for other in membership.neighbours(state.turns) if other not in state.left]
        if partners:
            partner = partners[hash_bits(self.seed, membership.rank, state.turns) % len(partners)]
            state.asked = (partner, state.turns)
            state.apart = False
            actions.append(m.Tell(partner, m.Note("ask", state.turns), state.local.x.tobytes()))

    def owing(self, state: ADPSGDState) -> bool:
        """Return whether no neighbour has taken half of this worker's last training."""
        return (
            state.apart and bool(set(state.membership.neighbours(state.turns)) - state.left)
        ) or state.asked is not None

    def figures(self, state: ADPSGDState) -> dict[str, float]:
        return {"averaged": state.averaged, "forgotten": state.forgotten}
