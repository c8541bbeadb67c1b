"""How a simulated worker gets to the others, and what its time goes into: where the runtime measures, time is spent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from taut.simulator.models.costs import Costs
from taut.simulator.models.network import Network
from taut.simulator.models.speeds import Pace
from taut.simulator.script.fibers import NS, Fiber
from taut.simulator.script.node import Switchboard, VirtualNode, VirtualTransport
from taut.simulator.trace import Trace
from taut.worker.connection import Connector
from taut.worker.time_split import Stopwatch


class VirtualWatch(Stopwatch):
    """Charges virtual time, after spending what the models say the work took: the step's computing when it is reached,
    the codec's and the messages' when they are charged. ``place`` numbers the worker among the simulated ones."""

    def __init__(self, fiber: Fiber, place: int, pace: Pace, costs: Costs, trace: Trace | None) -> None:
        self.fiber, self.place, self.pace, self.costs, self.trace = fiber, place, pace, costs, trace
        self.transport: VirtualTransport | None = None
        self.seat: Any = None
        self.stepped: Callable[[], None] = _nothing
        self.slowed: Callable[[], float] = _as_ever
        self.steps = 0
        self._share = 0.0  # of the present step's computing that is over
        self._worked_ns = 0
        self._counted = [0, 0, 0, 0]  # messages and bytes sent, messages and bytes taken
        super().__init__(clock=fiber.world)

    def meet(self, transport: VirtualTransport) -> None:
        """The transport whose messages are counted; nothing was sent by it yet."""
        self.transport, self._counted = transport, [0, 0, 0, 0]

    def thread_s(self) -> float:
        return self._worked_ns / NS

    def reached(self, share: float) -> None:
        if share > self._share:
            whole_ns = self.pace.step_ns(self.place, self.steps)
            self._spend(round(whole_ns * self.slowed() * (share - self._share)))
            self._share = share

    def begin_step(self) -> None:
        self.steps += 1
        self._share = 0.0
        self.stepped()

    def charge(self, kind: str) -> float:
        if kind in ("encode", "send", "merge"):
            self._spend(round(self._cost_s(kind) * NS))
        begun_ns = round(self.last_s * NS)
        spent = super().charge(kind)
        if self.trace is not None and self.fiber.world.now_ns > begun_ns:
            self.trace.span(self.place, kind, begun_ns, self.fiber.world.now_ns)
        return spent

    def _cost_s(self, kind: str) -> float:
        """What the work that is being charged took this worker's thread, by the models."""
        if self.transport is None:
            return 0.0
        if self.seat is None:
            return 0.0
        replica: Any = self.seat.replica
        of_vectors = getattr(getattr(self.seat.talk, "local", None), "coder", None) is not None
        talks = replica.talks or of_vectors
        costs, codec = self.costs, self.costs.codec(replica.codec.name if talks else "dense")
        if kind == "encode":
            parts = 1 if of_vectors else replica.fragments
            return codec.fixed_s + codec.encode_s_per_element * replica.arena.size / parts if talks else 0.0
        if kind == "send":
            messages, size = self._since(0, self.transport.messages_sent), self._since(1, self.transport.bytes_sent)
            return messages * costs.message_s + size * costs.send_s_per_byte
        messages, size = self._since(2, self.transport.messages_taken), self._since(3, self.transport.bytes_taken)
        per_byte = costs.receive_s_per_byte + (codec.absorb_s_per_byte if talks else costs.copy_s_per_byte)
        return messages * costs.message_s + size * per_byte

    def _since(self, which: int, now: int) -> int:
        before, self._counted[which] = self._counted[which], now
        return now - before

    def _spend(self, duration_ns: int) -> None:
        if duration_ns > 0:
            self._worked_ns += duration_ns
            self.fiber.sleep(duration_ns)


class VirtualEntrance(Connector):
    """Of the ``place``-th simulated worker."""

    watch: VirtualWatch

    def __init__(self, fiber: Fiber, place: int, network: Network, switch: Switchboard, watch: VirtualWatch) -> None:
        self.fiber, self.watch, self.network, self.switch = fiber, watch, network, switch
        self.public_key, self.host, self.pid = "", "simulated", place + 1
        self.transport = VirtualTransport(fiber.world, network, place, switch)
        self._plug_in()
        self.made: VirtualNode | None = None
        self.seat: Any = None

    def node(self, make_strategy: Any, **options: Any) -> VirtualNode:
        self.made = VirtualNode(self.fiber, self.transport, make_strategy, **options)
        return self.made

    def _plug_in(self) -> None:
        self.address = self.transport.address
        self.switch.transports[self.address] = self.transport
        self.watch.meet(self.transport)

    def renew(self) -> None:
        former = self.transport
        self.transport = VirtualTransport(former.world, self.network, former.place, self.switch, former.number + 1)
        self.seat = self.watch.seat = None
        self._plug_in()

    def joined(self, session: Any) -> None:
        self.seat = self.watch.seat = session


def _nothing() -> None:
    pass


def _as_ever() -> float:
    return 1.0
