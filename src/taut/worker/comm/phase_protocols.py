"""The stages of a run's phases at one worker: messages and events go to the one they belong to, and its actions are done.

Belongs to the communication thread; the training thread takes what arrived, and reads the figures.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from taut.core.clock import Clock
from taut.core.events import (
    Action,
    Arrived,
    Blocked,
    Disputed,
    Drained,
    Event,
    Heard,
    Include,
    PeerAhead,
    PeerGone,
    PeerJoined,
    Refused,
    Send,
)
from taut.core.messages import Parcel, Updates
from taut.errors import MalformedMessage
from taut.worker.comm.backlog import Backlog
from taut.worker.comm.early_messages import EarlyMessages
from taut.worker.comm.phase_protocol import PhaseProtocol, Protocol, Tagged
from taut.worker.comm.rejections import Rejections
from taut.worker.comm.run_status import RunStatus

SendTo = Callable[[int, Tagged, Sequence[bytes | memoryview]], bool]


class PhaseProtocols:
    """``send`` is to another worker; False: there is no room just now."""

    def __init__(self, facts: RunStatus, clock: Clock, send: SendTo, limit_nbytes: int, refusals: Rejections) -> None:
        self._facts, self._clock, self._send, self._limit_nbytes = facts, clock, send, limit_nbytes
        self._refusals = refusals
        self.present: PhaseProtocol | None = None  # from the welcome on
        self.former: PhaseProtocol | None = None  # of the phase before: somebody may be behind, and need an answer
        self.staleness = 1.0
        self.horizon = math.inf  # beyond it a worker's clock may not go (strategies that bound the delay)
        self.fastest = 0  # the largest clock that is known
        self.early = EarlyMessages(limit_nbytes)
        self.members: dict[int, int] = {}  # the others in the run, and the phase in which each begins
        self.gone: set[int] = set()
        self.arrivals: deque[Include] = deque()
        self._backlog = Backlog(limit_nbytes)  # of arrivals
        self._rank = -1

    @property
    def stage(self) -> PhaseProtocol:
        assert self.present is not None
        return self.present

    def begin(self, protocol: Protocol, rank: int, synced: bool, phase: int = 0) -> None:
        """As worker ``rank``, in the run's present ``phase``; anew where that is another one before this worker has the
        state. ``synced``: it has it already."""
        self._rank = rank
        self.former = None
        self._enter(PhaseProtocol(phase, protocol, rank, synced, self._limit_nbytes))

    def advance(self, protocol: Protocol) -> None:
        """To the next phase."""
        self.former = self.stage
        self._enter(PhaseProtocol(self.stage.phase + 1, protocol, self._rank, True, self._limit_nbytes))

    def _enter(self, stage: PhaseProtocol) -> None:
        """With all who are in the run by then, or have been."""
        self.arrivals.clear()
        self._backlog = Backlog(self._limit_nbytes)
        self._facts.note(drained=False)
        self.present = stage
        for rank in sorted(self.gone):
            self.tell(PeerGone(rank))
        for rank, first_phase in self.members.items():
            if first_phase <= stage.phase:
                self.tell(PeerJoined(rank))
        for sender, message, payloads in self.early.take():
            try:
                self.arrived(sender, message, payloads)
            except MalformedMessage as error:
                self._refusals.add(sender, str(error))
        self._facts.note()

    def met(self, rank: int, first_phase: int) -> None:
        """Worker ``rank`` is in the run, from ``first_phase`` on: a later one than it was told before, where that came to
        its end before this worker had a state."""
        before = self.members.get(rank)
        if before is not None and first_phase <= before:
            return
        self.members[rank] = first_phase
        for stage in filter(None, (self.former, self.present)):
            knows = before is not None and before <= stage.phase
            if first_phase > stage.phase and knows:
                self.tell(PeerAhead(rank), stage)
            elif first_phase <= stage.phase and not knows:
                self.tell(PeerJoined(rank), stage)

    def lost(self, rank: int) -> None:
        """It is gone, in whichever phase it was."""
        self.members.pop(rank, None)
        self.gone.add(rank)
        self.tell_all(PeerGone(rank))

    def take(self) -> list[Include]:
        """What has arrived and is to be included, in the order to include it. For the training thread."""
        taken: list[Include] = []
        while self.arrivals:
            item = self.arrivals.popleft()
            self._backlog.taken(item.origin, item.nbytes)
            taken.append(item)
        return taken

    def arrived(self, sender: int, message: Tagged, payloads: list[bytes]) -> None:
        """For the phase that it belongs to: the present one, the one before, or one that is still to come here."""
        stage, former = self.stage, self.former
        if message.phase > stage.phase:
            behind = not self._facts.started or self.members.get(sender, 0) >= message.phase
            if message.phase == stage.phase + 1 or not behind:  # else we are to begin later, or it did: it is sent again
                self.early.keep(sender, message, payloads, stage.phase)
        elif message.phase == stage.phase:
            if isinstance(message, Updates | Parcel) and (self._backlog.full(sender) or stage.backlog.full(sender)):
                return  # it will be sent again
            self.tell(Arrived(sender, message, payloads))
        elif former is not None and message.phase == former.phase:
            self.tell(Arrived(sender, message, payloads), former)

    def tell_all(self, event: Event) -> None:
        """Also the phase before: it goes on until everybody is through with it."""
        if self.former is not None:
            self.tell(event, self.former)
        self.tell(event)

    def tell(self, event: Event, stage: PhaseProtocol | None = None) -> None:
        """The present phase, or this one."""
        stage = stage or self.stage
        self._do(stage.on(event, self._clock.now()), stage)
        if stage is not self.present:
            return
        self.staleness = stage.state.staleness
        pace = stage.pace()
        if pace is not None and pace != (self.horizon, self.fastest):
            self.horizon, self.fastest = pace
            self._facts.note()

    def _do(self, actions: list[Action], stage: PhaseProtocol) -> None:
        blocked: set[int] = set()
        for action in actions:
            match action:
                case Send(to, message, payloads):
                    if to in blocked or self._send(to, stage.tag(message), payloads):
                        continue
                    if isinstance(message, Updates | Parcel):
                        blocked.add(to)
                        self.tell(Blocked(to, message), stage)
                case Include() if stage is self.present:  # the phase before is over here: nothing of it can be missing
                    self._backlog.came(action.origin, action.nbytes)
                    self.arrivals.append(action)
                case Heard():
                    stage.deliver(action)
                    self._facts.note()
                case Refused(sender, why):
                    self._refusals.add(sender, why)
                case Disputed(origin, other):
                    self._refusals.dispute(origin, other)
                case Drained():
                    if stage is self.present:  # the one before says so again when somebody dies after it
                        self._facts.note(drained=True)
