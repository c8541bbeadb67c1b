"""D-PSGD: after each local step, every worker averages its weights with its neighbours'.

    x_i  <-  sum_j W_ij x_j        W doubly stochastic (Metropolis-Hastings weights by default), so the mean is conserved

Synchronous between neighbours only: a worker waits for those it is wired to. Moments of the optimizer stay at home.
Paper: Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from taut.core.events import Ended
from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.method import (
    Draining,
    Finished,
    Heard,
    Local,
    Method,
    MethodAction,
    MethodEvent,
    Place,
    Placed,
    Proceed,
    Stepped,
    Tell,
    Turnstile,
)

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass
class Mixing:
    """A worker's state. ``told``: the neighbours that have this round's x; None while the worker trains."""

    local: Local
    place: Place
    turnstile: Turnstile = field(default_factory=Turnstile)
    told: set[int] | None = None
    left: set[int] = field(default_factory=set)  # neighbours that said good-bye
    draining: bool = False
    rounds: int = 0


@dataclass(frozen=True)
class DPSGD(Method):
    """``--strategy dpsgd``.

    >>> DPSGD().name
    'dpsgd'
    """

    name: ClassVar[str] = "dpsgd"
    paper: ClassVar[str] = "Lian et al. 2017"

    def start(self, place: Place, local: Local) -> Mixing:
        return Mixing(local, place)

    def on(self, state: Mixing, event: MethodEvent, now: float) -> list[MethodAction]:
        actions: list[MethodAction] = []
        match event:
            case Stepped():
                state.told = set()
            case Heard(sender, Note(kind="bye"), _):
                state.left.add(sender)
            case Heard(sender, _, payload):
                if len(payload) != state.local.x.nbytes:
                    raise MalformedMessage(f"weights of {len(payload)} bytes; this model has {state.local.x.nbytes}")
                state.turnstile.put(sender, payload)
            case Placed(place):
                state.place = place
                state.left &= set(place.members)
                state.turnstile.keep(place.members)
            case Ended():
                pass
            case Draining():
                state.draining = True
                actions += [Tell(other, Note("bye")) for other in state.place.others]
        if state.told is not None:
            self._mix(state, actions)
        if state.draining and state.told is None and state.left >= set(state.place.others):
            actions.append(Finished())
        return actions

    def _mix(self, state: Mixing, actions: list[MethodAction]) -> None:
        """Tell the neighbours that have not been told yet, and mix once all of theirs are here."""
        assert state.told is not None
        neighbours = state.place.neighbours(state.rounds)
        fresh = [other for other in neighbours if other not in state.told and other not in state.left]
        if fresh and not state.draining:
            payload = state.local.x.tobytes()
            actions += [Tell(other, Note("weights"), payload) for other in fresh]
            state.told |= set(fresh)
        present = [other for other in neighbours if state.turnstile.waiting.get(other) or other not in state.left]
        if state.draining or not state.turnstile.ready(present):
            if not state.draining:
                return
        else:
            _average(state.local.x, state.place, state.rounds, state.turnstile.take(present))
            state.rounds += 1
        state.told = None
        actions.append(Proceed())


def _average(x: npt.NDArray[np.float32], place: Place, round: int, theirs: dict[int, bytes]) -> None:
    """x <- sum_j W_ij x_j; the share of a neighbour that is gone stays with x."""
    shares = place.graph(round).weights()[place.rank]
    x *= np.float32(1.0 - sum(shares[other] for other in theirs))
    for other, payload in sorted(theirs.items()):
        x += np.float32(shares[other]) * np.frombuffer(payload, np.float32)
