"""The turns of one worker of a ``MethodWorld``: those of the runtime (``RoundDriver``), where nothing takes time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from taut.worker.exchange.round_driver import RoundDriver
from taut.worker.exchange.turns import Turn, Wait

if TYPE_CHECKING:
    from taut.testing.worlds.method_world import MethodWorld


class ActorTurns:
    """The ``RoundIO`` of worker ``rank``. Its clock stands still: the world itself says when a round is held up."""

    over = leaving = False

    def __init__(self, world: MethodWorld, rank: int) -> None:
        self._world, self._rank = world, rank
        self.driver = RoundDriver(world.method, self)
        self._turn: Turn | None = None
        self._wait: Wait | None = None  # that the turn is in
        self._catches_up = True

    def begin(self, samples: int, catches_up: bool) -> None:
        """Take a turn after a step on ``samples`` samples, as far as that goes now. ``catches_up``: what came while the
        worker trained is told in this turn; else when the caller wishes."""
        self._catches_up = catches_up
        self._turn = self.driver.turn(samples, self._world.rate)
        self._resume()

    def go_on(self) -> None:
        """Go on with the turn, if what it waits for has happened."""
        if self._wait is not None and self._wait.until():
            self._resume()

    def _resume(self) -> None:
        assert self._turn is not None
        self._wait = None
        for wait in self._turn:
            if wait is not None and not wait.until():
                self._wait = wait
                return

    @property
    def method_state(self) -> Any:
        return self._world.actors[self._rank].method_state

    @property
    def version(self) -> int:
        return self._world.version

    def now(self) -> float:
        return 0.0

    def fetch(self, samples: int) -> None:
        """Do nothing: the method sees the worker's own vector."""

    def put_back(self) -> None:
        """Do nothing, likewise."""

    def charge(self, kind: str) -> None:
        """Do nothing: no time passes."""

    def catch_up(self) -> None:
        if self._catches_up:
            self._world.catch_up(self._rank)

    idle = catch_up

    def ask(self, what: object, event: Any, now: float) -> None:
        self._world.tell(self._rank, event)

    def own_turn(self, samples: int) -> Turn:
        return self.driver.turn(samples, self._world.rate)

    def owing(self) -> bool:
        return False

    def hand_off(self) -> Turn:
        yield from ()

    pass_on = hand_off
