"""What the communication thread has learnt from the supervisor, for the training thread to read and wait on."""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass, field

from taut.core import messages as msg
from taut.core.sample_ranges import Span, without
from taut.errors import Expelled, GivenUp, Refused


@dataclass
class RunStatus:
    """Written by the communication thread under ``changed``, read by anyone. ``failure`` ends every wait."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    failure: BaseException | None = None
    welcome: msg.Welcome | None = None
    roster: msg.Roster | None = None
    donor: int | None = None
    founds: bool = False  # this worker keeps its initial state, and the others know of it
    started: bool = False
    drain: str | None = None
    averages: bool = False  # at the end, replicas that drifted apart by rounding
    leave: str | None = None  # this worker alone is to go, and why
    drained: bool = False
    leases: deque[msg.Lease] = field(default_factory=deque)
    dealt_out: set[int] = field(default_factory=set)
    reserve: msg.Reserve = field(default_factory=lambda: msg.Reserve(0, 0, []))  # for this worker, not taken yet
    taken: list[Span] = field(default_factory=list)  # from there, while the supervisor may not know of it
    finish: tuple[msg.Finish, bytes] | None = None
    uploaded: int = 0  # bytes of the model that the supervisor has of this worker
    saved: msg.Saved | None = None
    phase: int = 0  # of a run that changes its strategy, as announced to one who knows who is in it
    growths: int = 0  # how many of those phases began with a grown model
    announced: tuple[int, int, int] = (0, 0, 0)  # the phase, the version of the roster that it takes to go there; growths
    steering: msg.Steering = field(default_factory=msg.Steering)  # what the run's owner has changed
    checkpoint: int = 0  # the last one that was asked for
    state: tuple[memoryview, dict[int, int]] | None = None  # a donor's, complete
    answered_s: float | None = None  # when the supervisor last said anything
    silent_since_s: float | None = None  # the supervisor is, for so long that it must be taken for gone; it may come back
    heard_again_s: float = -math.inf  # when the last such silence ended

    @property
    def stopping(self) -> bool:
        """Return whether no more steps are made here: the run is being drained, or this worker is to go."""
        return self.drain is not None or self.leave is not None

    def over(self, phase: int) -> bool:
        """Return whether a phase of the run is over: the next one was announced, or the run is being drained."""
        return self.drain is not None or self.phase > phase

    def learn(self, message: msg.SupervisorMessage, payloads: list[bytes]) -> None:  # noqa: PLR0912  # one case per message
        """Take a message of the supervisor."""
        with self.changed:
            match message:
                case msg.Welcome():
                    self.welcome = message
                case msg.Roster() if self.roster is None or message.stamp > self.roster.stamp:
                    self.roster = message
                case msg.Donor(rank):
                    self.donor = rank
                case msg.Start():
                    self.started = True
                case msg.Lease():
                    self.leases.append(message)
                case msg.NoLease(epoch):
                    self.dealt_out.add(epoch)
                case msg.Reserve():
                    self._adopt(message)
                case msg.Drain(reason, averages):
                    self.drain, self.averages = reason, averages
                case msg.Leave(reason):
                    self.leave = reason
                case msg.Finish():
                    self.finish, self.uploaded = (message, payloads[0]), message.have
                case msg.UploadSeen(nbytes):
                    self.uploaded = nbytes
                case msg.Saved():
                    self.saved = message
                case msg.NextPhase(phase, version, growths):
                    self.announced = max(self.announced, (phase, version, growths))
                case msg.Steering() if message.number >= self.steering.number:
                    self.steering = message
                case msg.Checkpoint(number):
                    self.checkpoint = max(self.checkpoint, number)
                case msg.Refusal(reason):
                    self.failure = Refused(reason)
                case msg.Expulsion(reason, welcome, without):
                    told = f"the cluster went on without this worker: {reason}"
                    self.failure = GivenUp(told, without) if welcome else Expelled(told)
                case msg.Pulse() | msg.Roster() | msg.Moved() | msg.Steering():
                    pass
            if self.roster is not None and self.roster.version >= self.announced[1]:
                self.phase = max(self.phase, self.announced[0])
                self.growths = max(self.growths, self.announced[2])
            self.changed.notify_all()

    def _adopt(self, reserve: msg.Reserve) -> None:
        """Take what is set aside for this worker, without what was taken already: the supervisor may not have heard of
        that. An index missing from an offer is not an acknowledgement: ``Reserves.renewed`` may offer it again."""
        if reserve.version <= self.reserve.version:
            return
        spans: list[Span] = list(reserve.spans)
        for span in self.taken:
            spans = without(spans, span)
        self.reserve = msg.Reserve(reserve.version, reserve.length, spans)

    def fail(self, error: BaseException) -> None:
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()

    def note(self, **status: object) -> None:
        """Set fields and wake whoever waits."""
        with self.changed:
            for name, value in status.items():
                setattr(self, name, value)
            self.changed.notify_all()
