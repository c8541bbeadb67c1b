"""The supervisor in virtual time: its state machine, with the model of a network instead of a socket, and a snapshot in
memory instead of a disk, from which it restarts after it was killed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from taut.core.messages import SUPERVISOR, Statistics, Welcome, WorkerMessage
from taut.errors import MalformedMessage, Misuse
from taut.simulator.models.network import Network
from taut.simulator.script.comm import Switchboard, VirtualTransport
from taut.simulator.script.fibers import NS, EventLoop
from taut.supervisor.data.lease_wal import pack
from taut.supervisor.loop import TICK_S
from taut.supervisor.run.actions import (
    Action,
    KeepMetrics,
    KeepStatistics,
    Record,
    RunFinished,
    Save,
    SaveIndex,
    SendMessage,
)
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.storage.snapshot import keep, outline, recall
from taut.supervisor.view import Outcome
from taut.transport.framing import SUPERVISOR_QUEUE, decode, encode, nbytes

KEEP_NS = NS  # between two snapshots


class VirtualSupervisor:
    """``noted(kind, text)`` is called for each event that the real one would store; models are not stored. ``keeps``:
    take snapshots as the real one does; only then it can restart."""

    def __init__(
        self, loop: EventLoop, network: Network, switch: Switchboard, plan: RunPlan, noted: Callable[[str, str], None]
    ) -> None:
        self.loop, self.network, self.switch, self.noted = loop, network, switch, noted
        self.plan = plan
        self.cluster = Cluster(plan, loop.now())
        self.keeps = self.away = False
        self._kept = keep(self.cluster, loop.now())
        self._kept_ns = 0
        self._ahead: list[bytes] = []  # write-ahead log since the snapshot
        self._outline: tuple[object, ...] = ()
        self._life = 0
        self._waiting: dict[VirtualTransport, list[list[bytes]]] | None = None  # messages sent to it while it is away
        self.outcome: Outcome | None = None
        self.last: dict[int, Statistics] = {}
        self.evaluations: list[tuple[float, float]] = []  # virtual time, score
        switch.supervisor = self
        self._tick()

    def heard(self, transport: VirtualTransport, frames: list[bytes]) -> None:
        if self.away:
            queue = [] if self._waiting is None else self._waiting.setdefault(transport, [])
            if len(queue) < SUPERVISOR_QUEUE:
                queue.append(frames)
            return
        connection = transport.address.encode()
        try:
            message, payloads = decode(frames, WorkerMessage)
        except MalformedMessage as error:
            self._do(self.cluster.malformed(connection, str(error), self.loop.now()))
            return
        self._do(self.cluster.heard(connection, message, payloads, self.loop.now()))  # type: ignore[arg-type]

    def kill(self, lose_messages: bool) -> None:
        """Kill the supervisor. ``lose_messages``: messages sent to it meanwhile do not wait for it."""
        self.away = True
        self._life += 1
        self._waiting = None if lose_messages else {}

    def restart(self) -> None:
        """Restart from the snapshot, in the next term; then handle the messages that waited."""
        now, away_s = self.loop.now(), (self.loop.now_ns - self._kept_ns) / NS
        self.cluster = recall(self.plan, self._kept, self.cluster.term + 1, now, self._ahead, away_s)
        self.away, waiting, self._waiting = False, self._waiting or {}, None
        self._tick(self._life)
        for transport, queue in waiting.items():
            for frames in queue:
                self.heard(transport, frames)

    def disconnected(self, transport: VirtualTransport) -> None:
        """Report that a worker's connection ended: after the messages it had sent, and not if the network is cut."""
        now_ns, connection = self.loop.now_ns, transport.address.encode()

        def closed() -> None:
            is_cut = self.switch.faults.is_cut(transport.worker, SUPERVISOR, self.loop.now_ns)
            if not self.away and not is_cut:
                self.cluster.closed(connection, self.loop.now())

        self.loop.at(self.network.arrival(transport.worker, SUPERVISOR, 0, now_ns), closed)

    def exited(self, pid: int, reason: str) -> None:
        """Report that a process ended, as its launcher does."""
        self._do(self.cluster.exited(pid, reason, False, self.loop.now()))

    def dismiss(self, rank: int, reason: str) -> None:
        """Ask this worker to leave; do nothing if that cannot be: it is gone, or all are leaving."""
        with contextlib.suppress(Misuse):
            self._do(self.cluster.dismiss(rank, reason, self.loop.now()))

    def drain(self, reason: str) -> None:
        if not self.away:
            self._do(self.cluster.drain(reason, self.loop.now()))

    def _tick(self, life: int = 0) -> None:
        if self.outcome is not None or life != self._life:
            return
        self._do(self.cluster.tick(self.loop.now()))
        if self.loop.now_ns - self._kept_ns >= KEEP_NS:
            self._keep()
        self.loop.at(self.loop.now_ns + int(TICK_S * NS), lambda: self._tick(life))

    def _keep(self) -> None:
        if self.keeps:
            self._kept, self._kept_ns = keep(self.cluster, self.loop.now()), self.loop.now_ns
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
                case SendMessage(connection, message, payloads):
                    address = connection.decode()
                    if isinstance(message, Welcome):
                        self.switch.ranks[address] = message.rank
                    if address:  # else the worker has sent nothing since the supervisor restarted
                        self._send(self.switch.transports[address], encode(message, payloads))
                case Record(kind, text):
                    self.noted(kind, text)
                case KeepStatistics(rank, statistics):
                    self.last[rank] = statistics
                case KeepMetrics(_, points):
                    scores = [each.value for each in points if each.name == "validation"]
                    self.evaluations += [(self.loop.now(), score) for score in scores if score is not None]
                case Save(_, name):
                    self._saved(f"{name}.safetensors")
                case SaveIndex():
                    self._saved("ensemble.json")
                case RunFinished(outcome):
                    self.outcome = outcome
                case _:
                    pass  # the outcome has the workers that joined and left

    def _saved(self, name: str) -> None:
        life = self._life

        def written() -> None:
            if life == self._life:
                self._do(self.cluster.saved(name, "", self.loop.now()))

        self.loop.at(self.loop.now_ns, written)

    def _send(self, transport: VirtualTransport, frames: list[bytes]) -> None:
        if transport.closed:
            self._do(self.cluster.unreachable(transport.address.encode(), self.loop.now()))
            return
        now_ns = self.loop.now_ns
        arrival_ns = self.network.arrival(SUPERVISOR, transport.worker, nbytes(frames), now_ns)
        if self.switch.faults.delays_ns(SUPERVISOR, transport.worker, now_ns):
            self.loop.at(arrival_ns, lambda: self._delivered(transport, frames))

    def _delivered(self, transport: VirtualTransport, frames: list[bytes]) -> None:
        if not self.switch.faults.is_cut(SUPERVISOR, transport.worker, self.loop.now_ns):
            transport.take(SUPERVISOR, frames)
