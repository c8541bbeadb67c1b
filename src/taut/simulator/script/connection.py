"""How a simulated worker connects to the others, and its stopwatch, which spends virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from taut.core.callbacks import do_nothing
from taut.simulator.models.costs import Costs
from taut.simulator.models.network import Network
from taut.simulator.models.speeds import Pace
from taut.simulator.script.comm import Switchboard, VirtualCommThread, VirtualTransport
from taut.simulator.script.fibers import NS, Fiber
from taut.simulator.trace import Trace
from taut.worker.joining.connection import Connector
from taut.worker.time_split import Stopwatch


class VirtualWatch(Stopwatch):
    """Charges virtual time, after spending what the models say the work took: the step's computing when it is reached,
    the codec's and the messages' when they are charged. ``worker`` numbers the worker among the simulated ones."""

    virtual = True

    def __init__(self, fiber: Fiber, worker: int, pace: Pace, costs: Costs, trace: Trace | None) -> None:
        self.fiber, self.worker, self.pace, self.costs, self.trace = fiber, worker, pace, costs, trace
        self.transport: VirtualTransport | None = None
        self.session: Any = None
        self.stepped: Callable[[], None] = do_nothing
        self.slowed: Callable[[], float] = lambda: 1.0
        self.steps = 0
        self._share = 0.0  # of the present step's computing that is done
        self._batches, self.weighs = 1.0, False  # batches are parts of a global batch
        self._worked_ns = 0
        self._counted = [0, 0, 0, 0]  # messages and bytes sent, messages and bytes taken
        super().__init__(clock=fiber.loop)

    def meet(self, transport: VirtualTransport) -> None:
        """Count the messages of this transport, which has sent nothing yet."""
        self.transport, self._counted = transport, [0, 0, 0, 0]

    def thread_s(self) -> float:
        return self._worked_ns / NS

    def reached(self, share: float) -> None:
        if share > self._share:
            whole_ns = self.pace.step_ns(self.worker, self.steps)
            self._spend(round(whole_ns * self._batches * self.slowed() * (share - self._share)))
            self._share = share

    @property
    def elsewhere(self) -> bool:
        return not self.fiber.runs_here

    def weigh(self, batches: float) -> None:
        self._batches, self.weighs = batches, True

    def begin_step(self) -> None:
        self.steps += 1
        self._share = 0.0
        self.stepped()

    def charge(self, kind: str) -> float:
        if kind in ("encode", "send", "merge"):
            self._spend(round(self._cost_s(kind) * NS))
        begun_ns = round(self.last_s * NS)
        spent = super().charge(kind)
        if self.trace is not None and self.fiber.loop.now_ns > begun_ns:
            self.trace.span(self.worker, kind, begun_ns, self.fiber.loop.now_ns)
        return spent

    def _cost_s(self, kind: str) -> float:
        """Return the time that the work being charged took this worker's thread, by the models."""
        if self.transport is None or self.session is None:
            return 0.0
        replica, of_vectors = self.session.replica, self.session.exchange.coder is not None
        compresses = replica.uses_codec or of_vectors
        costs, codec = self.costs, self.costs.codec(replica.codec.name if compresses else "dense")
        if kind == "encode":
            parts = 1 if of_vectors else replica.fragments
            return codec.fixed_s + codec.encode_s_per_element * replica.params.size / parts if compresses else 0.0
        if kind == "send":
            messages, size = self._since(0, self.transport.messages_sent), self._since(1, self.transport.bytes_sent)
            return messages * costs.message_s + size * costs.send_s_per_byte
        messages, size = self._since(2, self.transport.messages_taken), self._since(3, self.transport.bytes_taken)
        per_byte = costs.receive_s_per_byte + (codec.absorb_s_per_byte if compresses else costs.copy_s_per_byte)
        return messages * costs.message_s + size * per_byte

    def _since(self, which: int, now: int) -> int:
        before, self._counted[which] = self._counted[which], now
        return now - before

    def _spend(self, duration_ns: int) -> None:
        if duration_ns > 0:
            self._worked_ns += duration_ns
            self.fiber.sleep(duration_ns)


class VirtualConnector(Connector):
    """The connector of simulated worker number ``worker``."""

    watch: VirtualWatch

    def __init__(self, fiber: Fiber, worker: int, network: Network, switch: Switchboard, watch: VirtualWatch) -> None:
        self.fiber, self.watch, self.network, self.switch = fiber, watch, network, switch
        self.public_key, self.host, self.pid = "", "simulated", worker + 1
        self.transport = VirtualTransport(fiber.loop, network, worker, switch)
        self._plug_in()
        self.made: VirtualCommThread | None = None
        self.session: Any = None

    def comm(self, make_strategy: Any, **options: Any) -> VirtualCommThread:
        self.made = VirtualCommThread(self.fiber, self.transport, make_strategy, **options)
        return self.made

    def _plug_in(self) -> None:
        self.address = self.transport.address
        self.switch.transports[self.address] = self.transport
        self.watch.meet(self.transport)

    def renew(self) -> None:
        previous = self.transport
        self.transport = VirtualTransport(previous.loop, self.network, previous.worker, self.switch, previous.number + 1)
        self.session = self.watch.session = None
        self._plug_in()

    def joined(self, session: Any) -> None:
        self.session = self.watch.session = session
