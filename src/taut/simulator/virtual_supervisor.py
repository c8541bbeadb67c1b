"""The supervisor in virtual time: its state machine, with the model of a network instead of a socket and no disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from taut.communication.framing import decode, encode, nbytes
from taut.communication.transport import Envelope
from taut.core.messages import SUPERVISOR, Statistics, Welcome, WorkerMessage
from taut.errors import MalformedMessage
from taut.simulator.fibers import NS, World
from taut.simulator.network import Network
from taut.simulator.virtual_node import Switchboard, VirtualTransport
from taut.supervisor.actions import Action, Finished, Measured, Record, Save, SaveIndex, Send
from taut.supervisor.cluster import Cluster
from taut.supervisor.roll import RunPlan
from taut.supervisor.service import TICK_S
from taut.supervisor.view import Outcome


class VirtualSupervisor:
    """``noted(kind, text)`` is told what the real one would keep of events; models are not kept."""

    def __init__(
        self, world: World, network: Network, switch: Switchboard, plan: RunPlan, noted: Callable[[str, str], None]
    ) -> None:
        self.world, self.network, self.switch, self.noted = world, network, switch, noted
        self.cluster = Cluster(plan, world.now())
        self.outcome: Outcome | None = None
        self.last: dict[int, Statistics] = {}
        switch.supervisor = self
        self._tick()

    def heard(self, transport: VirtualTransport, frames: list[bytes]) -> None:
        """A worker said something."""
        connection = transport.address.encode()
        try:
            message, payloads = decode(frames, WorkerMessage)
        except MalformedMessage as error:
            self._do(self.cluster.malformed(connection, str(error), self.world.now()))
            return
        self._do(self.cluster.heard(connection, message, payloads, self.world.now()))  # type: ignore[arg-type]

    def drain(self, reason: str) -> None:
        self._do(self.cluster.drain(reason, self.world.now()))

    def stop(self, reason: str) -> None:
        """The run fails: no more can happen."""
        self._do(self.cluster.stop(reason, self.world.now()))

    def _tick(self) -> None:
        if self.outcome is None:
            self._do(self.cluster.tick(self.world.now()))
            self.world.at(self.world.now_ns + int(TICK_S * NS), self._tick)

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Send(connection, message, payloads):
                    address = connection.decode()
                    if isinstance(message, Welcome):
                        self.switch.ranks[address] = message.rank
                    self._send(self.switch.transports[address], encode(message, payloads))
                case Record(kind, text):
                    self.noted(kind, text)
                case Measured(rank, statistics):
                    self.last[rank] = statistics
                case Save(_, name):
                    self._saved(f"{name}.safetensors")
                case SaveIndex():
                    self._saved("ensemble.json")
                case Finished(outcome):
                    self.outcome = outcome
                case _:
                    pass  # who joined and who departed is in the outcome

    def _saved(self, name: str) -> None:
        self.world.at(self.world.now_ns, lambda: self._do(self.cluster.saved(name, "", self.world.now())))

    def _send(self, transport: VirtualTransport, frames: list[bytes]) -> None:
        arrival_ns = self.network.arrival(SUPERVISOR, transport.place, nbytes(frames), self.world.now_ns)
        self.world.at(arrival_ns, lambda: transport.take(Envelope(SUPERVISOR, frames)))
