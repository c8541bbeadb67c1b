"""The communication thread's work: what comes is decoded and told to the protocols, what they answer is carried out.

One thread at a time does it (``comm_thread.py`` says which). It never touches the model: what is to be included waits in
queues.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from taut.core import messages as msg
from taut.core.clock import Clock, MonotonicClock
from taut.core.events import Tick
from taut.errors import MalformedMessage
from taut.strategies.api import Membership
from taut.topologies.shape import Shape
from taut.transport.framing import decode, encode, nbytes
from taut.transport.transport import Transport
from taut.worker.comm.election import ElectionDriver
from taut.worker.comm.phase_protocols import PhaseProtocols, Protocol, Tagged
from taut.worker.comm.rejections import Rejections
from taut.worker.comm.run_status import RunStatus
from taut.worker.comm.state_transfer import StateTransfer
from taut.worker.comm.supervisor_client import SupervisorClient
from taut.worker.tracing import StepTracer

TICK_S = 0.05


class Dispatcher:
    """``make_strategy`` is called with the ``Welcome`` once the supervisor admits this worker, and again where the run
    goes on to another phase before this worker is ready; ``statistics`` and ``sketch`` are asked for at every beat."""

    def __init__(
        self,
        transport: Transport,
        make_strategy: Callable[[msg.Welcome], Protocol],
        *,
        statistics: Callable[[], msg.Statistics] = msg.Statistics,
        sketch: Callable[[], list[float]] = list,
        clock: Clock | None = None,
        state_limit_nbytes: int = 1 << 40,
    ) -> None:
        self.transport, self.make_strategy = transport, make_strategy
        self.clock = clock or MonotonicClock()
        self.status = RunStatus()
        self.supervisor = SupervisorClient(transport, self.status, self.clock, statistics, sketch)
        self.supervisor.sent_to = lambda: dict(self.sent_to.most_common(msg.MOST_LINKS))
        self.transfer = StateTransfer(self.status, self._send, state_limit_nbytes)
        self.rejections = Rejections()  # of what others sent
        self.protocols = PhaseProtocols(self.status, self.clock, self._send, state_limit_nbytes, self.rejections)
        self.election: ElectionDriver | None = None  # where workers may agree on who is in the run
        self.rank = -1
        self.workers = 1  # in the run, this one included
        self.bytes_sent = 0
        self.sent_to: Counter[int] = Counter()  # bytes, by the worker that got them
        self.tracer: StepTracer | None = None  # that makes spans of messages between workers
        self.commands: deque[Callable[[], None]] = deque()  # what the training thread asks for
        self._ticked_s = float("-inf")

    def join_elections(self) -> None:
        """Take part, from now on, in elections of a membership while the supervisor cannot be reached."""
        election = ElectionDriver(self.rank, self.supervisor, self._send_word, self._enter)
        self.supervisor.view = election.told
        self.election = election

    @property
    def bounded(self) -> bool:
        phase_protocol = self.protocols.present
        return phase_protocol is not None and phase_protocol.bounded

    def membership(self, shape: Shape, phase: int) -> Membership:
        """Return the membership of ``phase`` by the last roster: this worker and all that are ready, wired as
        ``shape``."""
        roster = self.status.roster
        assert roster is not None
        ready = {member.rank for member in roster.members if member.ready and member.first_phase <= phase}
        return Membership(self.rank, tuple(sorted(ready | {self.rank})), shape, roster.stamp)

    def work(self, timeout_s: float | None) -> None:
        """Take in what came (``None``: not now), carry out what the training thread asked for, and do what is due."""
        for sender, frames in self.transport.receive(timeout_s) if timeout_s is not None else ():
            began_ns = time.time_ns() if self.tracer is not None else 0
            try:
                if sender == msg.SUPERVISOR:
                    self._on_supervisor(*decode(frames, msg.SupervisorMessage))
                elif self.protocols.present is not None:
                    message, payloads = decode(frames, msg.PeerMessage)
                    if self.election is not None:
                        self.election.seen(sender, self.clock.now())
                    if isinstance(message, Tagged):
                        if message.phase >= self.transfer.phase and has_state(message):
                            self.transfer.forget(sender)
                        self.protocols.arrived(sender, message, payloads)
                    else:
                        self._on_request(sender, message, payloads)
                    if self.tracer is not None:
                        self.tracer.message("receive", sender, message, nbytes(frames), began_ns)
            except MalformedMessage as error:
                self.rejections.add(sender, str(error))
        while self.commands:
            self.commands.popleft()()
        self.supervisor.send()
        self._on_time(self.clock.now())

    def _on_supervisor(self, message: Any, payloads: list[bytes]) -> None:
        self.supervisor.heard(message, self.clock.now())
        if isinstance(message, msg.Welcome) and self.protocols.present is None:
            self.rank, self.supervisor.term = message.rank, message.term
            self._begin(message)
            self.transport.supervisor.admitted()
        self.status.learn(message, payloads)
        if isinstance(message, msg.Roster) and self.status.roster is message:
            self._on_roster(message)

    def _enter(self, roster: msg.Roster) -> None:
        """Take a roster that the workers agreed on."""
        self.status.learn(roster, [])
        if self.status.roster is roster:
            self._on_roster(roster)

    def _on_roster(self, roster: msg.Roster) -> None:
        for gone in roster.gone:
            if gone.rank not in self.protocols.gone and gone.rank != self.rank:
                self.transport.forget(gone.rank)
                self.sent_to.pop(gone.rank, None)
                self.transfer.forget(gone.rank)
                self.protocols.lost(gone.rank)
        for member in roster.members:
            if member.rank != self.rank and self._admitted(member):
                self.protocols.met(member.rank, member.first_phase)
        self.workers = len(roster.members)
        first_phase = next((member.first_phase for member in roster.members if member.rank == self.rank), 0)
        if first_phase > self.protocols.phase_protocol.phase and self.status.welcome is not None:
            self._begin(msgspec.structs.replace(self.status.welcome, started=True, phase=first_phase))
        if self.election is not None:
            self.election.entered(roster)

    def _admitted(self, member: msg.Member) -> bool:
        """Return whether this worker can reach ``member``. A member whose address or key cannot be used is counted,
        left out, and tried again with the next roster; the others are not held up by it."""
        if member.rank not in self.protocols.members:
            try:
                self.transport.admit(member)
            except MalformedMessage as error:
                self.rejections.add(member.rank, str(error))
                return False
        return True

    def _begin(self, welcome: msg.Welcome) -> None:
        """Begin in the phase that the run is in; begin again where the run has gone on before this worker had its
        state."""
        self.protocols.begin(self.make_strategy(welcome), welcome.rank, synced=False, phase=welcome.phase)
        self.transfer.enter(welcome.phase)
        self.status.note(state=None, founds=False)

    def _on_request(self, sender: int, message: Any, payloads: list[bytes]) -> None:
        match message:
            case msg.StateRequest():
                self.transfer.asked(sender, message)
            case msg.StateChunk():
                self.transfer.arrived(sender, message, payloads, self.protocols.phase_protocol.state, self.clock.now())
            case msg.Presence() if self.election is not None:
                self.election.heard(sender, message, self.clock.now())

    def _on_time(self, now: float) -> None:
        if self.status.welcome is None and self.protocols.present is None:
            self.supervisor.watch_admission(now)
        if now - self._ticked_s >= TICK_S:
            self._ticked_s = now
            if self.protocols.present is not None:
                self.protocols.tell_all(Tick())
                self.transfer.go_on(self.protocols.phase_protocol.state, now)
        if self.protocols.present is not None:
            self.supervisor.beat(now, self._complaints, self.rejections.disputes)
        if self.election is not None:
            self.election.entered(self.status.roster)  # it may have been told before there was anything to agree on
            self.election.tick(now)

    def _complaints(self) -> list[msg.Complaint]:
        return self.rejections.complaints(self.transport.excess)

    def _send_word(self, to: int, word: msg.Presence) -> None:
        self._send(to, word, ())

    def _send(self, to: int, message: msg.Message, payloads: Sequence[bytes | memoryview]) -> bool:
        """Send a message to another worker; return whether there was room for it."""
        began_ns = time.time_ns() if self.tracer is not None else 0
        frames = encode(message, payloads)
        sent = self.transport.send(to, frames)
        if sent:
            self.bytes_sent += nbytes(frames)
            self.sent_to[to] += nbytes(frames)
        if self.tracer is not None and sent:
            self.tracer.message("send", to, message, nbytes(frames), began_ns)
        return sent


def has_state(message: Tagged) -> bool:
    """Return whether this message shows that its sender has the run's state. Updates do not; nor do reports without a
    position, which a newcomer sends."""
    return not isinstance(message, msg.Updates) and not (isinstance(message, msg.Report) and message.position < 0)
