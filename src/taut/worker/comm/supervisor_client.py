"""A worker's link to its supervisor: what is said until it is heard, heartbeats, and whether it still lives.

Both sides count the messages that were said (heartbeats and pulses apart) and tell each other the counts. Where they
differ, or the supervisor is in another life than it was, something may be lost: the worker reports what it did and holds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from taut.config import PATIENCE_S
from taut.core import messages as msg
from taut.core.clock import Clock
from taut.core.failure_detector import HEARTBEAT_S, Detector
from taut.errors import Refused, SupervisorLost
from taut.transport.framing import encode
from taut.transport.transport import Transport
from taut.worker.comm.run_status import RunStatus

ADMISSION_S = 60.0  # for the first answer: nothing was measured yet
QUIET_PULSES = 2.0
BEATS_PER_LINKS = 4
UNEASY = 2.0  # phi


class SupervisorClient:
    """``statistics`` and ``sketch`` are asked for at every heartbeat, ``standing`` when something may be lost; from the
    thread that communicates."""

    def __init__(
        self,
        transport: Transport,
        status: RunStatus,
        clock: Clock,
        statistics: Callable[[], msg.Statistics],
        sketch: Callable[[], list[float]],
    ) -> None:
        self.transport, self.status, self.clock = transport, status, clock
        self.statistics, self.sketch = statistics, sketch
        self.standing: Callable[[], msg.Returned] | None = None
        self.view: Callable[[], tuple[int, msg.View | None, bool]] = _no_view  # for heartbeats
        self.host_use: Callable[[], msg.HostUse | None] = _unknown  # the same; None: not now
        self.sent_to: Callable[[], dict[int, int]] = dict  # asked for at every fourth one
        self.term = 0  # of the supervisor's lives
        self.renewals = 0  # how often something said to it may have been lost
        self.admission_s = ADMISSION_S
        self.patience_s = float(PATIENCE_S)
        self.acknowledged = msg.Statistics()  # as the supervisor has heard
        self._beaten = msg.Statistics()  # as said last
        self._sketched: list[float] = []  # the sketch that was said last
        self._unsaid: deque[list[bytes]] = deque()  # when it has no room
        self._last_words: list[bytes] | None = None  # how the replica ended
        self._said = self._told = 0  # messages to and from it, without heartbeats and pulses
        self._lost = 0  # how often some to it did not come, as far as is known here
        self._seen = 0  # version of what is set aside for this worker, as it was told
        self._beat_s = float("-inf")
        self._beats = 0
        self._began_s = clock.now()
        self._detector = Detector(self._began_s)
        self._pulsed_s = self._pulse_s = math.inf  # when the last pulse came, and how long after the one before

    def uneasy(self, now: float) -> bool:
        """Return whether the supervisor is late, though it need not be gone: about one pulse in a hundred is so late by
        chance."""
        return self._detector.phi(now) > UNEASY

    def rhythm(self) -> list[int]:
        """Return the rhythm of the supervisor's pulses, as ``Detector.kept`` tells it."""
        return self._detector.kept()

    def lost(self) -> bool:
        """Return whether the supervisor is silent for so long that no worker waits for it any more."""
        since_s = self.status.silent_since_s
        return since_s is not None and self.clock.now() - since_s > self.patience_s

    def quiet(self) -> bool:
        """Return whether two pulses, at the pace of the last ones, are missing: the supervisor may be gone, or slow. From
        any thread."""
        heard_s = self.status.answered_s
        return heard_s is not None and self.clock.now() - heard_s > QUIET_PULSES * self._pulse_s

    # ------------------------------------------------------------------------------------------------ saying

    def say(self, message: msg.Message, payloads: Sequence[bytes]) -> None:
        """Queue a message; it goes as soon as there is room, in order."""
        if isinstance(message, msg.Done):
            message = msgspec.structs.replace(message, said=self._said + len(self._unsaid))
        if isinstance(message, msg.Failed):  # what was done since the last heartbeat
            self._sent(msg.Heartbeat(self.statistics(), [], [], self._said))
        self._unsaid.append(encode(message, payloads))
        if isinstance(message, msg.Digest):
            self._last_words = self._unsaid[-1]

    @property
    def all_said(self) -> bool:
        return not self._unsaid

    def send(self) -> None:
        """Send what is queued, as far as there is room; then tell that a new reserve is seen, for what was taken of the
        one before is among what was sent."""
        while self._unsaid and self.transport.send(msg.SUPERVISOR, self._unsaid[0]):
            self._unsaid.popleft()
            self._said += 1
        version = self.status.reserve.version
        if version > self._seen and not self._unsaid and self._sent(msg.ReserveSeen(version, self._said)):
            self._seen = version

    def beat(
        self, now: float, complaints: Callable[[], list[msg.Complaint]], disputes: Sequence[msg.Dispute] = ()
    ) -> None:
        """Send a heartbeat, when one is due."""
        late_s = now - self._beat_s - HEARTBEAT_S
        if late_s < 0.0:
            return
        if HEARTBEAT_S < late_s < math.inf:  # this process itself was away: what it was told meanwhile is not read yet
            self._detector.pause(late_s, now)
        self._beat_s = now
        self._beaten = self.statistics()
        self._beats += 1
        links = self.sent_to() if self._beats % BEATS_PER_LINKS == 0 else {}
        told = (list(disputes), self.host_use(), links)
        # A sketch is 2 kB and made anew every few seconds: with each heartbeat it took a seventh of a link of 256 kbit/s.
        sketch = self.sketch()
        new = [] if sketch is self._sketched else sketch
        if self._sent(msg.Heartbeat(self._beaten, new, complaints(), self._said, *self.view(), *told)):
            self._sketched = sketch
        if self._detector.suspects(now) and self.status.silent_since_s is None:
            self.status.note(silent_since_s=now)

    def due_in_s(self, now: float) -> float:
        """Return in how many seconds the next heartbeat is due."""
        return self._beat_s + HEARTBEAT_S - now

    def _sent(self, message: msg.Message) -> bool:
        return self.transport.send(msg.SUPERVISOR, encode(message, ()))

    # ----------------------------------------------------------------------------------------------- hearing

    def heard(self, message: Any, now: float) -> None:
        """Take note that the supervisor lives: this message came. ``RunStatus`` learns what it means for the run."""
        self.status.answered_s = now
        if isinstance(message, msg.Pulse):
            self._detector.beat(now)
            self._pulse_s, self._pulsed_s = max(HEARTBEAT_S, now - self._pulsed_s), now
            self.acknowledged = self._beaten
            self._hear_pulse(message)
        else:
            self._detector.seen(now)
            self._told += not isinstance(message, msg.Moved)
        if self.status.silent_since_s is not None:
            self.status.heard_again_s, self.status.silent_since_s = now, None
        if isinstance(message, msg.Moved):
            self._follow(message)

    def _hear_pulse(self, pulse: msg.Pulse) -> None:
        """Report what this worker did and holds, and its last words again, where something may be lost: a supervisor
        that came back does not know what was said last, and a connection that broke may have taken something with it,
        either way."""
        back, lost = pulse.term > self.term, (pulse.told, pulse.lost) != (self._told, self._lost)
        if pulse.term < self.term or not (back or lost) or self.standing is None:
            return
        self.term, self._told, self._lost = pulse.term, pulse.told, pulse.lost
        self.renewals += 1
        if back:
            self._unsaid.clear()  # what was on its way to the one before
            self._sketched = []
        standing = msgspec.structs.replace(self.standing(), issued=pulse.issued)
        self._unsaid.append(encode(standing, ()))
        if self._last_words is not None:
            self._unsaid.append(self._last_words)
        self.status.note()

    def _follow(self, moved: msg.Moved) -> None:
        """Connect to the supervisor at another address. Its pulse there tells the rest."""
        if moved.term > self.term:
            self.transport.supervisor.repoint(moved.address)

    def watch_admission(self, now: float) -> None:
        """Fail where the token is wrong or nothing answers: that must not look like a supervisor that takes its time."""
        status = self.transport.supervisor.status
        if status == "refused":
            self.status.fail(Refused("the supervisor does not take this token: is it the token of this run?"))
        elif status == "expired":
            remedy = "ask for a new one (`taut token new RUN`, where the run's folder is)"
            self.status.fail(Refused(f"this token of the run has expired or was revoked: {remedy}"))
        elif now - self._began_s > self.admission_s and self.status.answered_s is None:
            self.status.fail(
                SupervisorLost(f"no answer from the supervisor in {self.admission_s:.0f} s: is it up, and reachable?")
            )


def _unknown() -> None:
    return None


def _no_view() -> tuple[int, msg.View | None, bool]:
    return 0, None, False
