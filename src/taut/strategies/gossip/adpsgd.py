"""AD-PSGD: asynchronous pairwise averaging. Nobody ever waits.

    i, after its step:       pick a neighbour j by lot, send x_i, train on
    j, when it hears that:   d = (x_i - x_j) / 2;   x_j += d;   answer d
    i, when it hears that:   x_i -= d

What one side gains the other gives, so the sum over all workers is conserved, whatever both were trained on meanwhile.
The gradient that i adds in between was taken at the older copy, as published. The paper makes each averaging atomic and
splits the workers into an active and a passive half, lest two wait for each other; here nobody holds a lock or waits for
the answer, so any graph will do. At most one question of a worker's own is under way. Moments stay at home.
Paper: Lian et al. 2018, "Asynchronous decentralized parallel stochastic gradient descent".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from taut.core.events import Ended
from taut.core.messages import Note
from taut.core.splitmix import hash_bits
from taut.strategies.api import (
    Draining,
    Finished,
    Heard,
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
    check_whole,
)
from taut.strategies.gossip.neighbour_rounds import check_length
from taut.strategies.info import Completeness, StrategyInfo, Variant


@dataclass
class Pairing:
    """A worker's state. ``asked``: the neighbour whose answer is under way, and the number of the question."""

    local: Local
    place: MemberPlace
    turns: int = 0
    asked: tuple[int, int] | None = None
    left: set[int] = field(default_factory=set)
    taken_leave: set[int] = field(default_factory=set)
    draining: bool = False
    averaged: int = 0
    forgotten: int = 0  # questions to those who are gone
    apart: bool = False  # it trained since it last asked
    leaving: bool = False


@dataclass(frozen=True)
class ADPSGD(Method):
    """``--strategy adpsgd --topology ring``.

    Arguments:
        every: ask after every so many steps.
        seed: of the lots.

    >>> import numpy as np
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(ADPSGD(), [np.full(1, float(rank), np.float32) for rank in range(4)], topology="ring")
    >>> world.run(60)
    >>> round(float(world.mean()[0]), 5)
    1.5
    """

    name: ClassVar[str] = "adpsgd"
    info: ClassVar[StrategyInfo] = StrategyInfo(Completeness.NEIGHBOURS, (Variant(topologies=("ring", "")),))
    paper: ClassVar[str] = "Lian et al. 2018"
    returns: ClassVar[Literal["sum", "mix", "take"]] = "mix"
    lockstep: ClassVar[bool] = False
    every: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "every", 1)
        check_whole(self, "seed", 0)

    def start(self, place: MemberPlace, local: Local) -> Pairing:
        return Pairing(local, place)

    def on(self, state: Pairing, event: MethodEvent, now: float) -> list[MethodAction]:
        actions: list[MethodAction] = []
        match event:
            case Stepped(samples):
                state.apart = state.apart or samples > 0
                self._ask(state, actions)
                actions.append(Proceed())
            case Leaving():
                state.leaving = True
            case Heard(sender, Note(kind="bye"), _):
                state.left.add(sender)
            case Heard(sender, Note(kind="ask", round=number), payload):
                check_length(event, state.local)
                x = state.local.x
                half = (np.frombuffer(payload, np.float32) - x) * np.float32(0.5)
                x += half
                actions.append(Tell(sender, Note("answer", number), half.tobytes()))
            case Heard(sender, note, payload):
                check_length(event, state.local)
                if state.asked == (sender, note.round):
                    x = state.local.x
                    x -= np.frombuffer(payload, np.float32)
                    state.asked = None
                    state.averaged += 1
            case Placed(place):
                state.place = place
                if state.asked is not None and state.asked[0] not in place.members:
                    state.asked = None
                    state.forgotten += 1
                    state.apart = True
            case Draining():
                state.draining = True
            case Ended():
                pass  # others may still ask
        if state.leaving and state.apart:
            self._ask(state, actions)
        if state.draining:
            _drain(state, actions)
        return actions

    def _ask(self, state: Pairing, actions: list[MethodAction]) -> None:
        state.turns += 1
        if state.asked is not None or state.draining or (state.turns % self.every and not state.leaving):
            return
        place = state.place
        partners = [other for other in place.neighbours(state.turns) if other not in state.left]
        if partners:
            partner = partners[hash_bits(self.seed, place.rank, state.turns) % len(partners)]
            state.asked = (partner, state.turns)
            state.apart = False
            actions.append(Tell(partner, Note("ask", state.turns), state.local.x.tobytes()))

    def owing(self, state: Pairing) -> bool:
        """Half of what it did last is with a neighbour when that one answers."""
        return (state.apart and bool(set(state.place.neighbours(state.turns)) - state.left)) or state.asked is not None

    def figures(self, state: Pairing) -> dict[str, float]:
        return {"averaged": float(state.averaged), "forgotten": float(state.forgotten)}


def _drain(state: Pairing, actions: list[MethodAction]) -> None:
    """Say good-bye once the last answer is here, answer others until they have said it, and go."""
    if state.asked is not None:
        return
    fresh = [other for other in state.place.others if other not in state.taken_leave]
    actions += [Tell(other, Note("bye")) for other in fresh]
    state.taken_leave.update(fresh)
    if state.left >= set(state.place.others):
        actions.append(Finished())
