"""The communication thread's work: what comes is decoded and told to the protocols, what they answer is carried out.

One thread at a time does it (``comm_thread.py`` says which). It never touches the model: what is to be included waits in
queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from taut.core.clock import Clock, MonotonicClock
from taut.core.events import Tick
from taut.core.messages import (
    SUPERVISOR,
    Complaint,
    Member,
    Message,
    Parcel,
    PeerMessage,
    Presence,
    Receipt,
    Report,
    Roster,
    StateChunk,
    StateRequest,
    Statistics,
    SupervisorMessage,
    Updates,
    Welcome,
)
from taut.errors import MalformedMessage
from taut.strategies.api import MemberPlace
from taut.topologies.shape import Shape
from taut.transport.framing import decode, encode, nbytes
from taut.transport.transport import Transport
from taut.worker.comm.election import ElectionDriver
from taut.worker.comm.phase_protocols import PhaseProtocol, PhaseProtocols, Protocol
from taut.worker.comm.rejections import Rejections
from taut.worker.comm.run_status import RunStatus
from taut.worker.comm.state_transfer import StateTransfer
from taut.worker.comm.supervisor_client import SupervisorClient

TICK_S = 0.05


class Dispatcher:
    """``make_strategy`` is called with the ``Welcome`` once the supervisor admits this worker, and again where the run
    goes on to another phase before this worker is ready; ``statistics`` and ``sketch`` are asked for at every beat."""

    def __init__(
        self,
        transport: Transport,
        make_strategy: Callable[[Welcome], Protocol],
        *,
        statistics: Callable[[], Statistics] = Statistics,
        sketch: Callable[[], list[float]] = list,
        clock: Clock | None = None,
        state_limit_nbytes: int = 1 << 40,
    ) -> None:
        self.transport, self.make_strategy = transport, make_strategy
        self.clock = clock or MonotonicClock()
        self.facts = RunStatus()
        self.supervisor = SupervisorClient(transport, self.facts, self.clock, statistics, sketch)
        self.handover = StateTransfer(self.facts, self._send, state_limit_nbytes)
        self.refusals = Rejections()  # of what others sent
        self.stages = PhaseProtocols(self.facts, self.clock, self._send, state_limit_nbytes, self.refusals)
        self.assembling: ElectionDriver | None = None  # where workers may agree on who is in the run
        self.rank = -1
        self.workers = 1  # in the run, this one included
        self.bytes_sent = 0
        self._commands: deque[Callable[[], None]] = deque()  # what the training thread asks for
        self._ticked_s = float("-inf")

    def assemble(self) -> None:
        """Take part, from now on, in elections of a membership while the supervisor cannot be reached."""
        assembling = ElectionDriver(self.rank, self.supervisor, self._send_word, self._enter)
        self.supervisor.view = assembling.told
        self.assembling = assembling

    def supervisor_lost(self) -> bool:
        """Return whether the supervisor is silent for so long that no worker waits for it any more."""
        return self.supervisor.lost()

    @property
    def snapshot_wanted(self) -> bool:
        """Return whether the training thread is to make a snapshot, for a newcomer."""
        return self.handover.wanted

    @property
    def bounded(self) -> bool:
        stage = self.stages.present
        return stage is not None and stage.bounded

    def place(self, shape: Shape, phase: int) -> MemberPlace:
        """Return the membership of ``phase`` by the last roster: this worker and all that are ready, wired as
        ``shape``."""
        roster = self.facts.roster
        assert roster is not None
        ready = {member.rank for member in roster.members if member.ready and member.first_phase <= phase}
        return MemberPlace(self.rank, tuple(sorted(ready | {self.rank})), shape, roster.stamp)

    @property
    def stage(self) -> PhaseProtocol:
        """Return the present phase's protocol; there is one from the welcome on."""
        return self.stages.stage

    def work(self, timeout_s: float | None) -> None:
        """Take in what came (``None``: not now), carry out what the training thread asked for, and do what is due."""
        if timeout_s is not None:
            for sender, frames in self.transport.receive(timeout_s):
                try:
                    if sender == SUPERVISOR:
                        self._on_supervisor(*decode(frames, SupervisorMessage))
                    elif self.stages.present is not None:
                        self._on_peer(sender, *decode(frames, PeerMessage))
                except MalformedMessage as error:
                    self.refusals.add(sender, str(error))
        while self._commands:
            self._commands.popleft()()
        self.supervisor.send()
        self._on_time(self.clock.now())

    def _on_supervisor(self, message: Any, payloads: list[bytes]) -> None:
        self.supervisor.heard(message, self.clock.now())
        if isinstance(message, Welcome) and self.stages.present is None:
            self.rank, self.supervisor.term = message.rank, message.term
            self._begin(message)
            self.transport.supervisor.admitted()
        self.facts.learn(message, payloads)
        if isinstance(message, Roster) and self.facts.roster is message:
            self._on_roster(message)

    def _enter(self, roster: Roster) -> None:
        """Take a roster that the workers agreed on."""
        self.facts.learn(roster, [])
        if self.facts.roster is roster:
            self._on_roster(roster)

    def _on_roster(self, roster: Roster) -> None:
        for gone in roster.gone:
            if gone.rank not in self.stages.gone and gone.rank != self.rank:
                self.transport.forget(gone.rank)
                self.handover.forget(gone.rank)
                self.stages.lost(gone.rank)
        for member in roster.members:
            if member.rank != self.rank and self._admitted(member):
                self.stages.met(member.rank, member.first_phase)
        self.workers = len(roster.members)
        first_phase = next((member.first_phase for member in roster.members if member.rank == self.rank), 0)
        if first_phase > self.stage.phase and self.facts.welcome is not None:
            self._begin(msgspec.structs.replace(self.facts.welcome, started=True, phase=first_phase))
        if self.assembling is not None:
            self.assembling.placed(roster)

    def _admitted(self, member: Member) -> bool:
        """Return whether this worker can talk to ``member``. A member whose address or key cannot be used is counted,
        left out, and tried again with the next roster; the others are not held up by it."""
        if member.rank not in self.stages.members:
            try:
                self.transport.admit(member)
            except MalformedMessage as error:
                self.refusals.add(member.rank, str(error))
                return False
        return True

    def _begin(self, welcome: Welcome) -> None:
        """Begin in the phase that the run is in; begin again where the run has gone on before this worker had its
        state."""
        self.stages.begin(self.make_strategy(welcome), welcome.rank, synced=False, phase=welcome.phase)
        self.handover.enter(welcome.phase)
        self.facts.note(state=None)

    def _on_peer(self, sender: int, message: Any, payloads: list[bytes]) -> None:
        if self.assembling is not None:
            self.assembling.seen(sender, self.clock.now())
        match message:
            case Updates() | Report() | Parcel() | Receipt():
                pending = isinstance(message, Updates) or (isinstance(message, Report) and message.position < 0)
                if not pending and message.phase >= self.handover.phase:
                    self.handover.forget(sender)
                self.stages.arrived(sender, message, payloads)
            case StateRequest():
                self.handover.asked(sender, message)
            case StateChunk():
                self.handover.arrived(sender, message, payloads, self.stage.state, self.clock.now())
            case Presence() if self.assembling is not None:
                self.assembling.heard(sender, message, self.clock.now())

    def _on_time(self, now: float) -> None:
        if self.facts.welcome is None and self.stages.present is None:
            self.supervisor.watch_admission(now)
        if now - self._ticked_s >= TICK_S:
            self._ticked_s = now
            if self.stages.present is not None:
                self.stages.tell_all(Tick())
                self.handover.go_on(self.stage.state, now)
        if self.stages.present is not None:
            self.supervisor.beat(now, self._complaints, self.refusals.disputes)
        if self.assembling is not None:
            self.assembling.placed(self.facts.roster)  # it may have been told before there was anything to agree on
            self.assembling.tick(now)

    def _complaints(self) -> list[Complaint]:
        return self.refusals.complaints(self.transport.excess)

    def _send_word(self, to: int, word: Presence) -> None:
        self._send(to, word, ())

    def _send(self, to: int, message: Message, payloads: Sequence[bytes | memoryview]) -> bool:
        """Send a message to another worker; return whether there was room for it."""
        frames = encode(message, payloads)
        sent = self.transport.send(to, frames)
        self.bytes_sent += nbytes(frames) if sent else 0
        return sent
