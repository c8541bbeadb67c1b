"""A worker that runs a method, in virtual time: the I/O of its turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from taut.simulator.timing.accounts import ENCODE, MERGE, WAIT, Account
from taut.simulator.timing.worker import TimedWorker
from taut.strategies.api import MembersChanged, MethodAction
from taut.worker.exchange.round_driver import RoundDriver
from taut.worker.exchange.turns import Turn

if TYPE_CHECKING:
    from taut.simulator.timing.methods import Mail, MethodTiming
    from taut.simulator.timing.stand_ins import StandIn

RATE = 0.1  # the learning rate that methods are told


class MethodWorker(TimedWorker):
    """Its own ``RoundIO``. ``held``: the messages that came while it trained."""

    __slots__ = ("_world", "held", "local", "method_state", "version")

    driver: RoundDriver

    def __init__(self, world: MethodTiming, rank: int, goal: int, account: Account) -> None:
        super().__init__(rank, goal, account)
        self._world = world
        self.version = 0
        self.held: list[Mail] = []
        self.local: StandIn
        self.method_state: Any = None

    @property
    def over(self) -> bool:
        return self._world.draining

    def now(self) -> float:
        now_ns, busy_ns = self._world.now_ns, self.busy_ns
        return (now_ns if now_ns > busy_ns else busy_ns) * 1e-9

    def fetch(self, samples: int) -> None:
        world, account = self._world, self.account
        account.sent += 1
        if not samples:
            return
        if world.copies:
            buckets = self.method_state.buckets
            self.busy_ns += world.copy_ns * sum(not bucket.launched for bucket in buckets) // len(buckets)
            account.charge(MERGE, self.busy_ns)
        if world.encode_ns:
            self.busy_ns += world.encode_ns
            account.charge(ENCODE, self.busy_ns)

    def put_back(self) -> None:
        pass

    def catch_up(self) -> None:
        world = self._world
        if self.version != world.version:
            self.version = world.version
            self.ask(world.method.on, MembersChanged(world.membership(self.rank)), self.busy_ns * 1e-9)
        if self.held or (self.wait is None and self.inbox):  # what comes in a wait is heard in its time
            held, self.held = [*self.held, *self.inbox], []
            self.inbox.clear()
            for mail in held:
                world.hear(self, mail)
        if world.hands_over:
            world.hand_over(self)

    idle = catch_up

    def ask(self, what: Callable[..., list[MethodAction]], *given: Any) -> None:
        self._world.do(self, what(self.method_state, *given))

    def own_turn(self, samples: int) -> Turn:
        return self.driver.turn(samples, RATE)

    def owing(self) -> bool:
        return self._world.method.owing(self.method_state)

    def hand_off(self) -> Turn:
        if self._world.sizes.coded_kinds and self._world.keeps_residual:
            self._world.send_residual(self)
        yield None

    def pass_on(self) -> Turn:
        """Let the time pass until the last message that this worker sent has arrived."""
        world = self._world
        mail = (entry for entry in world.heap if entry[2] is world.mail_handler and entry[4][0] == self.rank)
        self.busy_ns = max(self.busy_ns, *(entry[0] for entry in mail), 0)
        self.account.charge(WAIT, self.busy_ns)
        yield None
