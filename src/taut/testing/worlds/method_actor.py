"""One worker of a ``MethodWorld``: its vector, as its method sees it. ``codec_actor.py`` has one with a real codec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from taut.strategies.delivery.channels import ChannelsState
from taut.strategies.local import Local

if TYPE_CHECKING:
    from taut.testing.worlds.method_turns import ActorTurns

Vector = npt.NDArray[np.float32]
Step = Callable[["Actor"], int]  # changes actor.x in place; how many samples that took


@dataclass
class Actor(Local):
    """One worker of the world, and what its method sees of it."""

    rank: int
    x: Vector
    channels: ChannelsState
    method_state: Any = None
    steps: int = 0  # local steps with data
    ended: bool = False
    told: Vector | None = None  # x as of the last `emit`
    since: int = 0  # where a method hands the state over: the round after which this worker's is

    io: ActorTurns = field(init=False, repr=False)  # set by the world

    @property
    def turns(self) -> int:
        """Return how many turns it took, those without data too."""
        return self.io.driver.turns

    @property
    def proceed(self) -> bool:
        """Return whether x is the worker's: it waits for nothing."""
        return self.io.driver.proceed

    @proceed.setter
    def proceed(self, proceed: bool) -> None:
        self.io.driver.proceed = proceed

    @property
    def finished(self) -> bool:
        return self.io.driver.finished

    def emit(self) -> bytes | None:
        """Return the change since the last call, as a dense codec would."""
        change = self.x if self.told is None else self.x - self.told
        self.told = self.x.copy()
        return change.tobytes() if change.any() else None

    def proceeded(self) -> None:
        """Do what follows a turn, when x is the worker's again: an optimizer's step, say."""

    def absorb(self, payload: bytes) -> None:
        self.shift(np.frombuffer(payload, np.float32))

    def merge(self, payloads: Sequence[bytes]) -> bytes:
        total: Vector = np.sum([np.frombuffer(payload, np.float32) for payload in payloads], axis=0, dtype=np.float32)
        return total.tobytes()

    @property
    def shared(self) -> Vector:
        return self.x

    def shift(self, change: Vector) -> None:
        self.x += change
        if self.told is not None:
            self.told += change

    def flush(self) -> list[bytes]:
        payload = self.emit()
        return [] if payload is None else [payload]

    def retune(self, workers: int, staleness: float) -> None:
        """Tune nothing: a dense codec sends the whole change."""

    def pack(self) -> bytes:
        """Return all that a step changes, for a newcomer whose method hands the state over."""
        return self.x.tobytes()

    def unpack(self, state: bytes) -> None:
        self.x[:] = np.frombuffer(state, np.float32)

    def snapshot(self) -> Vector:
        """Return the state that a newcomer takes over from this worker."""
        return self.x.copy()
