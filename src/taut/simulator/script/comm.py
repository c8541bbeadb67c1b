"""A worker's communication in virtual time: the runtime's own `CommThread`, whose thread is the event loop."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from taut.core.callbacks import do_nothing
from taut.core.events import Tell
from taut.core.messages import SUPERVISOR, Member
from taut.simulator.script.fibers import NS, EventLoop, Fiber
from taut.transport.framing import PEER_QUEUE, nbytes
from taut.transport.transport import Transport
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.dispatcher import TICK_S, Dispatcher
from taut.worker.comm.phase_protocols import PhaseProtocol

if TYPE_CHECKING:
    from taut.simulator.models.network import Network
    from taut.simulator.script.network_faults import NetworkFaults
    from taut.simulator.script.supervisor import VirtualSupervisor

FRAMING_NBYTES = 40  # what ZeroMQ and CURVE add to a message


class VirtualTransport(Transport):
    """A ``Transport`` over the model of a network; ``worker`` is the number of its cable there."""

    def __init__(self, loop: EventLoop, network: Network, worker: int, switch: Switchboard, number: int = 0) -> None:
        self.loop, self.network, self.worker, self.switch = loop, network, worker, switch
        self.number = number  # counts the worker's sessions
        self._address = f"virtual://{worker}" + (f"#{number}" if number else "")
        self.inbox: deque[tuple[int, list[bytes]]] = deque()
        self.arrived: Callable[[], None] = do_nothing
        self.closed = False
        self.frozen_until_ns = 0  # a process that is stopped takes in nothing
        self.messages_sent = self.bytes_sent = self.messages_taken = self.bytes_taken = 0
        self._peers: dict[int, VirtualTransport] = {}
        self._waiting: dict[int, deque[tuple[int, list[bytes]]]] = {}  # from workers that were not admitted yet
        self._under_way: Counter[int] = Counter()

    @property
    def address(self) -> str:
        return self._address

    def admit(self, member: Member) -> None:
        self._peers[member.rank] = self.switch.transports[member.address]
        self.inbox.extend(self._waiting.pop(member.rank, ()))

    def forget(self, rank: int) -> None:
        self._peers.pop(rank, None)
        self.inbox = deque(each for each in self.inbox if each[0] != rank)

    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        if self.closed:
            return False
        size = nbytes(frames) + FRAMING_NBYTES
        begun_ns = max(self.loop.now_ns, self.frozen_until_ns)
        if to == SUPERVISOR:
            arrival_ns = self.network.arrival(self.worker, SUPERVISOR, size, begun_ns)
            if self.switch.faults.delays_ns(self.worker, SUPERVISOR, begun_ns):
                self.loop.at(arrival_ns, lambda: self._heard(list(frames)))
            return True
        peer = self._peers.get(to)
        if peer is None or self._under_way[to] >= PEER_QUEUE:
            return False
        self._under_way[to] += 1
        self.messages_sent += 1
        self.bytes_sent += size
        arrival_ns = self.network.arrival(self.worker, peer.worker, size, begun_ns)
        sender, taken = self.switch.ranks[self.address], list(frames)
        delays_ns = self.switch.faults.delays_ns(self.worker, peer.worker, begun_ns)
        self.loop.at(arrival_ns, lambda: self._under_way.subtract([to]))
        for late_ns in delays_ns:
            self.loop.at(arrival_ns + late_ns, lambda: self._delivered(peer, sender, taken))
        return True

    def _delivered(self, peer: VirtualTransport, sender: int, frames: list[bytes]) -> None:
        if not self.switch.faults.is_cut(self.worker, peer.worker, self.loop.now_ns):
            peer.take(sender, frames)

    def _heard(self, frames: list[bytes]) -> None:
        if not self.switch.faults.is_cut(self.worker, SUPERVISOR, self.loop.now_ns):
            self.switch.supervisor.heard(self, frames)

    def take(self, sender: int, frames: list[bytes]) -> None:
        if self.closed:
            return
        if self.loop.now_ns < self.frozen_until_ns:
            self.loop.at(self.frozen_until_ns, lambda: self.take(sender, frames))
            return
        self.messages_taken += 1
        self.bytes_taken += nbytes(frames)
        if sender != SUPERVISOR and sender not in self._peers:
            self._waiting.setdefault(sender, deque()).append((sender, frames))
            return
        self.inbox.append((sender, frames))
        self.arrived()

    def receive(self, timeout_s: float | None) -> list[tuple[int, list[bytes]]]:
        taken, self.inbox = list(self.inbox), deque()
        return taken

    def wake(self) -> None:
        """Do nothing: the loop never sleeps."""

    def close(self, linger_s: float = 0.0) -> None:
        self.closed = True


class Switchboard:
    """The transport at each address, and the rank that the supervisor gave to each."""

    supervisor: VirtualSupervisor

    def __init__(self, faults: NetworkFaults) -> None:
        self.faults = faults
        self.transports: dict[str, VirtualTransport] = {}
        self.ranks: dict[str, int] = {}


class _FiberCondition:
    """Stands in for the condition of a run's status: waiting on it parks the fiber, notifying it rouses the fiber."""

    def __init__(self, ring: Callable[[], None], wait: Callable[[float], None]) -> None:
        self.notify_all, self.wait = ring, wait

    def __enter__(self) -> _FiberCondition:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class VirtualCommThread(CommThread):
    """Everything that the communication thread does, the event loop does: when a message arrives, and every 50 ms."""

    def __init__(self, fiber: Fiber, transport: VirtualTransport, make_strategy: Any, **options: Any) -> None:
        super().__init__(Dispatcher(transport, make_strategy, clock=fiber.loop, **options))
        self.fiber, self.loop, self._virtual = fiber, fiber.loop, transport
        self._waits = self._ended = False
        self.status.changed = _FiberCondition(self._ring, self._rest)  # type: ignore[assignment]
        transport.arrived = self._arrived

    @property
    def transport(self) -> VirtualTransport:
        return self._virtual

    def start(self) -> None:
        self._tick()

    def close(self, linger_s: float = 0.0) -> None:
        self._ended = True
        if not self.transport.closed:
            self.work(None)
            self.transport.close()

    def retire(self) -> PhaseProtocol:
        self.close()
        return self.phase_protocol

    def pump(self, receive: bool) -> None:
        self.work(0.0 if receive else None)
        if self.status.failure is not None:
            raise self.status.failure

    def wait(self, *args: Any, **options: Any) -> None:
        # The status is polled twenty times a second, for which the script's random state need not be restored.
        try:
            super().wait(*args, **options)
        finally:
            self.loop.swap_randomness(self.fiber)

    def pause(self, *args: Any, **options: Any) -> None:
        try:
            super().pause(*args, **options)
        finally:
            self.loop.swap_randomness(self.fiber)

    def post(self, tell: Tell, phase_protocol: PhaseProtocol | None = None) -> None:
        # A message that is posted while another one is being handled is sent after that, as in the runtime.
        super().post(tell, phase_protocol)
        if not self._busy:
            self.work(None)

    _busy = False

    def work(self, timeout_s: float | None) -> None:
        if self._busy:  # called from within itself: the outer call will do it
            return
        self._busy = True
        try:
            self.dispatcher.work(timeout_s)
        finally:
            self._busy = False

    def _command(self, command: Any) -> None:
        self._commands.append(command)
        self.work(None)

    def _rest(self, timeout_s: float) -> None:
        self._waits = self.fiber.resting = True
        self.fiber.wait(self.loop.now_ns + int(timeout_s * NS))
        self._waits = self.fiber.resting = False

    def _ring(self) -> None:
        if self._waits:
            self._waits = False
            self.fiber.rouse()

    def _arrived(self) -> None:
        if not self._ended:
            self._guarded(0.0)

    def _tick(self) -> None:
        if self._ended or self.transport.closed:
            return
        if self.loop.now_ns >= self.transport.frozen_until_ns:
            self._guarded(None)
        self.loop.at(self.loop.now_ns + int(TICK_S * NS), self._tick)

    def _guarded(self, timeout_s: float | None) -> None:
        try:
            self.work(timeout_s)
        except Exception as error:  # as the communication thread does: the training thread gets the error
            self.status.fail(error)
