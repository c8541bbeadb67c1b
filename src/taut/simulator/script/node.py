"""A worker's end of the cluster in virtual time: the runtime's own node, whose other thread is the world's loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from taut.core.events import Tell
from taut.core.messages import SUPERVISOR, Member
from taut.simulator.script.fibers import NS, Fiber, World
from taut.transport.framing import PEER_QUEUE, nbytes
from taut.transport.transport import Transport
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.dispatcher import TICK_S
from taut.worker.comm.phase_protocols import PhaseProtocol

if TYPE_CHECKING:
    from taut.simulator.models.network import Network
    from taut.simulator.script.network_faults import Disruption
    from taut.simulator.script.supervisor import VirtualSupervisor

FRAMING_NBYTES = 40  # what ZeroMQ and CURVE add to a message


class VirtualTransport(Transport):
    """A ``Transport`` over the model of a network; ``place`` is the worker's cable there."""

    def __init__(self, world: World, network: Network, place: int, switch: Switchboard, number: int = 0) -> None:
        self.world, self.network, self.place, self.switch = world, network, place, switch
        self.number = number  # of the worker's seats
        self._address = f"virtual://{place}" + (f"#{number}" if number else "")
        self.inbox: deque[tuple[int, list[bytes]]] = deque()
        self.arrived: Callable[[], None] = _nothing
        self.closed = False
        self.frozen_until_ns = 0  # a process that is stopped takes in nothing
        self.messages_sent = self.bytes_sent = self.messages_taken = self.bytes_taken = 0
        self._peers: dict[int, VirtualTransport] = {}
        self._waiting: dict[int, deque[tuple[int, list[bytes]]]] = {}  # from workers that were not admitted yet
        self._under_way: dict[int, int] = {}

    @property
    def address(self) -> str:
        return self._address

    def admit(self, member: Member) -> None:
        peer = self.switch.transports[member.address]
        self._peers[member.rank] = peer
        self.inbox.extend(self._waiting.pop(member.rank, ()))

    def forget(self, rank: int) -> None:
        self._peers.pop(rank, None)
        self.inbox = deque(each for each in self.inbox if each[0] != rank)

    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        if self.closed:
            return False
        size = nbytes(frames) + FRAMING_NBYTES
        begun_ns = max(self.world.now_ns, self.frozen_until_ns)
        if to == SUPERVISOR:
            arrival_ns = self.network.arrival(self.place, SUPERVISOR, size, begun_ns)
            if self.switch.disruption.fate(self.place, SUPERVISOR, begun_ns):
                self.world.at(arrival_ns, lambda: self._heard(list(frames)))
            return True
        peer = self._peers.get(to)
        if peer is None or self._under_way.get(to, 0) >= PEER_QUEUE:
            return False
        self._under_way[to] = self._under_way.get(to, 0) + 1
        self.messages_sent += 1
        self.bytes_sent += size
        arrival_ns = self.network.arrival(self.place, peer.place, size, begun_ns)
        sender, taken = self.switch.rank_of(self), list(frames)
        fate = self.switch.disruption.fate(self.place, peer.place, begun_ns)
        self.world.at(arrival_ns, lambda: self._arrived_there(to))
        for late_ns in fate:
            self.world.at(arrival_ns + late_ns, lambda: self._delivered(peer, sender, taken))
        return True

    def _arrived_there(self, to: int) -> None:
        self._under_way[to] -= 1

    def _delivered(self, peer: VirtualTransport, sender: int, frames: list[bytes]) -> None:
        if not self.switch.disruption.parted(self.place, peer.place, self.world.now_ns):
            peer.take(sender, frames)

    def _heard(self, frames: list[bytes]) -> None:
        if not self.switch.disruption.parted(self.place, SUPERVISOR, self.world.now_ns):
            self.switch.supervisor.heard(self, frames)

    def take(self, sender: int, frames: list[bytes]) -> None:
        """A message is here."""
        if self.closed:
            return
        if self.world.now_ns < self.frozen_until_ns:
            self.world.at(self.frozen_until_ns, lambda: self.take(sender, frames))
            return
        self.messages_taken += 1
        self.bytes_taken += nbytes(frames)
        if sender != SUPERVISOR and sender not in self._peers:
            self._waiting.setdefault(sender, deque()).append((sender, frames))
            return
        self.inbox.append((sender, frames))
        self.arrived()

    def receive(self, timeout_s: float | None) -> list[tuple[int, list[bytes]]]:
        taken = list(self.inbox)
        self.inbox.clear()
        return taken

    def wake(self) -> None:
        """The loop never sleeps."""

    def close(self, linger_s: float = 0.0) -> None:
        self.closed = True


class Switchboard:
    """Who is reached at which address, and which rank the supervisor gave to whom."""

    supervisor: VirtualSupervisor

    def __init__(self, disruption: Disruption) -> None:
        self.disruption = disruption
        self.transports: dict[str, VirtualTransport] = {}
        self.ranks: dict[str, int] = {}

    def rank_of(self, transport: VirtualTransport) -> int:
        return self.ranks[transport.address]


class _Bell:
    """Stands where a node's facts have a condition: to wait on it is to park the fiber, which is roused when it rings."""

    def __init__(self, ring: Callable[[], None], wait: Callable[[float], None]) -> None:
        self.notify_all, self.wait = ring, wait

    def __enter__(self) -> _Bell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class VirtualNode(CommThread):
    """Everything that the communication thread does, the world's loop does: when a message arrives, and every 50 ms."""

    transport: VirtualTransport

    def __init__(self, fiber: Fiber, transport: VirtualTransport, make_strategy: Any, **options: Any) -> None:
        super().__init__(transport, make_strategy, clock=fiber.world, **options)
        self.fiber, self.world = fiber, fiber.world
        self._waits = self._ended = False
        self.facts.changed = _Bell(self._ring, self._rest)  # type: ignore[assignment]
        transport.arrived = self._arrived

    def start(self) -> None:
        self._tick()

    def close(self, linger_s: float = 0.0) -> None:
        self._ended = True
        if not self.transport.closed:
            self.work(None)
            self.transport.close()

    def pump(self, receive: bool) -> None:
        self.work(0.0 if receive else None)
        if self.facts.failure is not None:
            raise self.facts.failure

    def wait(self, *args: Any, **options: Any) -> None:
        # It looks at the facts twenty times a second, and the script's random state is of no use to that.
        try:
            super().wait(*args, **options)
        finally:
            self.world.dress(self.fiber)

    def pause(self, *args: Any, **options: Any) -> None:
        try:
            super().pause(*args, **options)
        finally:
            self.world.dress(self.fiber)

    def post(self, tell: Tell, stage: PhaseProtocol | None = None) -> None:
        # What is posted while a message is being handled goes when that is over, as in the runtime.
        super().post(tell, stage)
        if not self._busy:
            self.work(None)

    _busy = False

    def work(self, timeout_s: float | None) -> None:
        if self._busy:  # asked for by what it is doing: it comes to that by itself
            return
        self._busy = True
        try:
            super().work(timeout_s)
        finally:
            self._busy = False

    def _command(self, command: Any) -> None:
        self._commands.append(command)
        self.work(None)

    def _rest(self, timeout_s: float) -> None:
        self._waits = self.fiber.resting = True
        self.fiber.wait(self.world.now_ns + int(timeout_s * NS))
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
        if self.world.now_ns >= self.transport.frozen_until_ns:
            self._guarded(None)
        self.world.at(self.world.now_ns + int(TICK_S * NS), self._tick)

    def _guarded(self, timeout_s: float | None) -> None:
        try:
            self.work(timeout_s)
        except Exception as error:  # as the communication thread would: the training thread is told
            self.facts.fail(error)


def _nothing() -> None:
    pass
