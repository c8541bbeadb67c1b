"""A worker that runs a stream, in virtual time: the I/O of its turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from taut.core.events import Ended, Include, Published, Taken, Ticked
from taut.simulator.timing.accounts import WAIT, Account
from taut.simulator.timing.worker import TimedWorker
from taut.worker.exchange.stream_driver import StreamDriver
from taut.worker.exchange.turns import Turn

if TYPE_CHECKING:
    from taut.simulator.timing.streams import StreamTiming


class StreamWorker(TimedWorker):
    """Its own ``StreamIO``. ``arrivals``: received, and not included yet."""

    __slots__ = ("_world", "arrivals", "drained", "pumped_ns", "strategy_state")

    driver: StreamDriver

    def __init__(self, world: StreamTiming, rank: int, goal: int, account: Account) -> None:
        super().__init__(rank, goal, account)
        self._world = world
        self.arrivals: list[Include] = []
        self.pumped_ns = 0
        self.drained = False
        self.strategy_state: Any = None

    @property
    def publishes(self) -> bool:
        return self._world.publishes

    @property
    def bounded(self) -> bool:
        return self._world.strategy.bounded

    @property
    def horizon(self) -> float:
        return self._world.strategy.horizon(self.strategy_state)

    @property
    def fastest(self) -> int:
        return int(self.strategy_state.fastest())

    @property
    def stopping(self) -> bool:
        return self.leaving

    @property
    def over(self) -> bool:
        return self._world.draining

    @property
    def delivered(self) -> bool:
        return bool(self.strategy_state.delivered())

    def worked_s(self) -> float:
        return (self.busy_ns - self.account.spent_ns[WAIT]) * 1e-9

    def steps_alone(self) -> int | None:
        return None if len(self._world.members) > 1 else self._world.steps_alone

    def unheard(self) -> bool:
        return self._world.catches_up and len(self._world.members) == 1 and not self.bounded

    def retuned(self) -> None:
        pass

    def take_in(self) -> None:
        self._world.take_in(self)

    def include(self) -> dict[int, int]:
        if self.inbox:  # it came while the worker was busy
            self._world.take_in(self)
        if not self.arrivals:
            return {}
        arrivals, self.arrivals = self.arrivals, []
        self.account.included += len(arrivals)
        self.busy_ns += int(sum(len(item.payload) for item in arrivals) * self._world.absorb_ns_per_byte)
        return {item.origin: item.hi for item in arrivals}

    def emit(self) -> bytes | None:
        self.busy_ns += self._world.encode_ns
        return self._world.payload

    def flush(self) -> Iterable[bytes]:
        return (self._world.payload,)

    def publish(self, payload: bytes | None, positions: dict[int, int]) -> None:
        if positions:
            self._world.tell(self, Taken(positions))
        self.account.sent += 1
        self._world.tell(self, Published(payload))
        self.pumped_ns = self.busy_ns

    def confirm(self, positions: dict[int, int]) -> None:
        if positions:
            self._world.tell(self, Taken(positions))

    def tick(self, clock: int) -> None:
        self._world.tell(self, Ticked(clock))

    def hand_off(self, idle: Callable[[], None]) -> Turn:
        if self._world.keeps_residual:
            self._world.send_residual(self)
            yield None

    def end(self) -> None:
        self._world.tell(self, Ended())
