"""The supervisor in virtual time: its state machine, with the model of a network instead of a socket, and a memory
instead of a disk, from which it comes back where it is killed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from taut.core.messages import SUPERVISOR, Statistics, Welcome, WorkerMessage
from taut.errors import MalformedMessage, Misuse
from taut.simulator.models.network import Network
from taut.simulator.script.fibers import NS, World
from taut.simulator.script.node import Switchboard, VirtualTransport
from taut.supervisor.data.lease_wal import pack
from taut.supervisor.loop import TICK_S
from taut.supervisor.run.actions import Action, KeepStatistics, Record, RunFinished, Save, SaveIndex, Send
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.storage.snapshot import keep, outline, recall
from taut.supervisor.view import Outcome
from taut.transport.framing import SUPERVISOR_QUEUE, decode, encode, nbytes

KEEP_NS = NS  # between two writings of what must not be forgotten


class VirtualSupervisor:
    """``noted(kind, text)`` is told what the real one would keep of events; models are not kept. ``keeps``: what it must
    not forget is written down as the real one does it; only then it can come back."""

    def __init__(
        self, world: World, network: Network, switch: Switchboard, plan: RunPlan, noted: Callable[[str, str], None]
    ) -> None:
        self.world, self.network, self.switch, self.noted = world, network, switch, noted
        self.plan = plan
        self.cluster = Cluster(plan, world.now())
        self.keeps = self.away = False
        self._kept = keep(self.cluster, world.now())
        self._kept_ns = 0
        self._ahead: list[bytes] = []  # written down since then
        self._outline: tuple[object, ...] = ()
        self._life = 0
        self._waiting: dict[VirtualTransport, list[list[bytes]]] | None = None  # said to it while it is away
        self.outcome: Outcome | None = None
        self.last: dict[int, Statistics] = {}
        switch.supervisor = self
        self._tick()

    def heard(self, transport: VirtualTransport, frames: list[bytes]) -> None:
        """A worker said something."""
        if self.away:
            queue = [] if self._waiting is None else self._waiting.setdefault(transport, [])
            if len(queue) < SUPERVISOR_QUEUE:
                queue.append(frames)
            return
        connection = transport.address.encode()
        try:
            message, payloads = decode(frames, WorkerMessage)
        except MalformedMessage as error:
            self._do(self.cluster.malformed(connection, str(error), self.world.now()))
            return
        self._do(self.cluster.heard(connection, message, payloads, self.world.now()))  # type: ignore[arg-type]

    def kill(self, loses: bool) -> None:
        """It dies. ``loses``: what is said to it meanwhile does not wait for it."""
        self.away = True
        self._life += 1
        self._waiting = None if loses else {}

    def come_back(self) -> None:
        """From what it kept, in its next life; then it hears what waited for it."""
        now, away_s = self.world.now(), (self.world.now_ns - self._kept_ns) / NS
        self.cluster = recall(self.plan, self._kept, self.cluster.term + 1, now, self._ahead, away_s)
        self.away, waiting, self._waiting = False, self._waiting or {}, None
        self._tick(self._life)
        for transport, queue in waiting.items():
            for frames in queue:
                self.heard(transport, frames)

    def hung_up(self, transport: VirtualTransport) -> None:
        """A worker's process ended, and its connection with it; that is heard after what it had sent before, and not
        where the network is cut."""
        now_ns, connection = self.world.now_ns, transport.address.encode()

        def closed() -> None:
            parted = self.switch.disruption.parted(transport.place, SUPERVISOR, self.world.now_ns)
            if not self.away and not parted:
                self.cluster.closed(connection, self.world.now())

        self.world.at(self.network.arrival(transport.place, SUPERVISOR, 0, now_ns), closed)

    def exited(self, pid: int, reason: str) -> None:
        """Whoever started this process saw it end."""
        self._do(self.cluster.exited(pid, reason, False, self.world.now()))

    def dismiss(self, rank: int, reason: str) -> None:
        """Ask this worker to go; nothing happens where that cannot be: it is gone, or all are going."""
        with contextlib.suppress(Misuse):
            self._do(self.cluster.dismiss(rank, reason, self.world.now()))

    def drain(self, reason: str) -> None:
        if not self.away:
            self._do(self.cluster.drain(reason, self.world.now()))

    def stop(self, reason: str) -> None:
        """The run fails: no more can happen."""
        self._do(self.cluster.stop(reason, self.world.now()))

    def _tick(self, life: int = 0) -> None:
        if self.outcome is not None or life != self._life:
            return
        self._do(self.cluster.tick(self.world.now()))
        if self.world.now_ns - self._kept_ns >= KEEP_NS:
            self._keep()
        self.world.at(self.world.now_ns + int(TICK_S * NS), lambda: self._tick(life))

    def _keep(self) -> None:
        if self.keeps:
            self._kept, self._kept_ns = keep(self.cluster, self.world.now()), self.world.now_ns
            self._ahead.clear()
            self.cluster.leases.log.clear()

    def _write_ahead(self) -> None:
        log, drawn = self.cluster.leases.log, outline(self.cluster)
        if drawn != self._outline:
            self._outline = drawn
            self._keep()
        elif log and self.keeps:
            self._ahead.append(pack(log))
        log.clear()

    def _do(self, actions: Iterable[Action]) -> None:
        self._write_ahead()
        for action in actions:
            match action:
                case Send(connection, message, payloads):
                    address = connection.decode()
                    if isinstance(message, Welcome):
                        self.switch.ranks[address] = message.rank
                    if address:  # else it has not spoken since the supervisor came back
                        self._send(self.switch.transports[address], encode(message, payloads))
                case Record(kind, text):
                    self.noted(kind, text)
                case KeepStatistics(rank, statistics):
                    self.last[rank] = statistics
                case Save(_, name):
                    self._saved(f"{name}.safetensors")
                case SaveIndex():
                    self._saved("ensemble.json")
                case RunFinished(outcome):
                    self.outcome = outcome
                case _:
                    pass  # who joined and who departed is in the outcome

    def _saved(self, name: str) -> None:
        life = self._life

        def written() -> None:
            if life == self._life:
                self._do(self.cluster.saved(name, "", self.world.now()))

        self.world.at(self.world.now_ns, written)

    def _send(self, transport: VirtualTransport, frames: list[bytes]) -> None:
        if transport.closed:
            self._do(self.cluster.unreachable(transport.address.encode(), self.world.now()))
            return
        now_ns = self.world.now_ns
        arrival_ns = self.network.arrival(SUPERVISOR, transport.place, nbytes(frames), now_ns)
        if self.switch.disruption.fate(SUPERVISOR, transport.place, now_ns):
            self.world.at(arrival_ns, lambda: self._delivered(transport, frames))

    def _delivered(self, transport: VirtualTransport, frames: list[bytes]) -> None:
        if not self.switch.disruption.parted(SUPERVISOR, transport.place, self.world.now_ns):
            transport.take(SUPERVISOR, frames)
