"""A worker's end of the cluster: one communication thread that owns the sockets and drives the strategy.

The training thread hands updates over (``publish``), takes what arrived (``take``) and waits for facts (``wait``); it
never touches a socket. The communication thread never touches the model.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from taut.communication.framing import decode, encode, nbytes
from taut.communication.transport import Envelope, Transport
from taut.core.clock import Clock, MonotonicClock
from taut.core.detector import Detector
from taut.core.events import (
    Action,
    Arrived,
    Blocked,
    Deliver,
    Drained,
    Ended,
    Event,
    Include,
    PeerGone,
    PeerJoined,
    Post,
    Published,
    Send,
    Synced,
    Taken,
    Tick,
    Ticked,
)
from taut.core.messages import (
    SUPERVISOR,
    Heartbeat,
    Member,
    Message,
    Note,
    Parcel,
    PeerMessage,
    Pulse,
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
from taut.errors import MalformedMessage, Refused, SupervisorLost
from taut.worker.facts import Facts
from taut.worker.stage import Protocol, Stage
from taut.worker.state import State, pack
from taut.worker.transfer import Donation, Fetch

TICK_S = 0.05
ADMISSION_S = 60.0  # for the first answer: nothing was measured yet
AGAIN_S = 5.0  # far beyond any round trip to a supervisor whose pulse is still felt
HEARTBEAT_S = 0.5  # a rate, not a timeout: the supervisor's detector adapts to what it sees


@dataclass(frozen=True, slots=True)
class _Say:
    message: Message
    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class _Grant:
    state: State
    have: dict[int, int]


@dataclass(frozen=True, slots=True)
class _Post:
    stage: Stage
    event: Post


@dataclass(frozen=True, slots=True)
class _Advance:
    protocol: Protocol


Command = Event | _Say | _Grant | _Post | _Advance
EARLY = 4096  # messages of a phase that this worker has not come to yet; what is beyond is sent again


class Node:
    """``make_strategy`` is called with the ``Welcome`` once the supervisor admits this worker; ``statistics`` and
    ``sketch`` are asked for at every heartbeat."""

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
        self.statistics, self.sketch = statistics, sketch
        self.clock = clock or MonotonicClock()
        self.facts = Facts()
        self.rank = -1
        self.workers = 1  # in the run, this one included
        self.staleness = 1.0
        self.horizon = math.inf  # beyond it a worker's clock may not go (strategies that bound the delay)
        self.fastest = 0  # the largest clock that is known
        self.bytes_sent = 0
        self.malformed: dict[int, int] = {}
        self.snapshot_wanted = False
        self._stage: Stage | None = None
        self._former: Stage | None = None  # of the phase before: somebody may be behind, and need an answer
        self._early: deque[tuple[int, Any, list[bytes]]] = deque(maxlen=EARLY)
        self._commands: deque[Command] = deque()
        self._arrivals: deque[Include] = deque()
        self._unsaid: deque[list[bytes]] = deque()  # for the supervisor, when it has no room
        self._donation = Donation()
        self._fetch: Fetch | None = None
        self._fetched = False
        self._state_limit_nbytes = state_limit_nbytes
        self._closing: float | None = None  # asked to end, after so many seconds at most
        self._closing_s: float | None = None
        self._ticked_s = self._beat_s = float("-inf")
        self._began_s = self.clock.now()
        self._detector = Detector(self._began_s)  # of the supervisor
        self.patience_s = ADMISSION_S
        # The transport is used by one thread at a time. In training, that may be the training thread itself: waking
        # another one, and sharing the interpreter with it, costs a short step more than the work it would do.
        self._transport_lock = threading.Lock()
        self._pumped_s = float("-inf")  # when the training thread last did the work
        self._pump_wanted = threading.Event()
        self._rested = threading.Event()
        self._thread = threading.Thread(target=self._run, name="taut-communication", daemon=True)

    # ------------------------------------------------------------------------------------- the training thread

    def start(self) -> None:
        self._thread.start()

    def close(self, linger_s: float = 0.0) -> None:
        """Stop the communication thread, after ``linger_s`` at most for what is still queued."""
        self._closing = linger_s
        self._rested.set()
        self.transport.wake()
        if self._thread.is_alive():
            self._thread.join()
        else:
            self.transport.close()

    def say(self, message: Message, payloads: Sequence[bytes] = ()) -> None:
        """To the supervisor."""
        self._command(_Say(message, payloads))

    def publish(self, payload: bytes | None, positions: dict[int, int]) -> None:
        """One iteration is over: here is its update, and everything up to ``positions`` has been included."""
        if positions:
            self._commands.append(Taken(positions))
        self._commands.append(Published(payload))

    def pump(self, receive: bool) -> None:
        """Do the communication thread's work in this one, now: send what was published, and take in what came if asked
        to. If the other thread is at it, it is told that there is something to do, and that we would rather do it."""
        if not self._transport_lock.acquire(blocking=False):
            self._pump_wanted.set()
            self.transport.wake()
            return
        try:
            self._pumped_s = self.clock.now()
            self._work(0.0 if receive else None)
        except BaseException as error:
            self.facts.fail(error)
            raise
        finally:
            self._transport_lock.release()

    def ticked(self, clock: int) -> None:
        """So many iterations are over, where the strategy bounds the delay."""
        self._command(Ticked(clock))

    @property
    def bounded(self) -> bool:
        return self._stage is not None and self._stage.bounded

    @property
    def stage(self) -> Stage:
        """Of the present phase; there is one from the welcome on."""
        assert self._stage is not None
        return self._stage

    def advance(self, protocol: Protocol) -> None:
        """The phase is over for this worker: from now on it runs ``protocol``. Returns when that is so."""
        phase = self.stage.phase
        self._command(_Advance(protocol))
        self.wait(lambda _: self.stage.phase > phase, _nothing, needs_supervisor=False)

    def taken(self, positions: dict[int, int]) -> None:
        self._command(Taken(positions))

    def end(self) -> None:
        self._command(Ended())

    def synced(self, have: dict[int, int], tail: Sequence[Include]) -> None:
        self._command(Synced(have, list(tail)))

    def grant(self, state: State, have: dict[int, int]) -> None:
        """The snapshot that ``snapshot_wanted`` asked for. It holds everything that ``take`` has returned."""
        self.snapshot_wanted = False
        self._command(_Grant(state, have))

    def take(self) -> list[Include]:
        """What has arrived and is to be included, in the order to include it."""
        arrivals: list[Include] = []
        while self._arrivals:
            arrivals.append(self._arrivals.popleft())
        return arrivals

    def post(self, to: int, note: Note, payload: bytes | memoryview, stage: Stage | None = None) -> None:
        """A method's message to another worker. From any thread; reliable, in order."""
        self._commands.append(_Post(stage or self.stage, Post(to, note, payload)))
        if threading.current_thread() is not self._thread:
            self.transport.wake()

    def seat(self, rank: int, neighbours: Sequence[Member]) -> None:
        """Take a place without a supervisor (before ``start``): these are the neighbours, and everybody starts alike."""
        self.rank = rank
        welcome = Welcome(rank, "", 0, len(neighbours) + 1, "{}")
        self._stage = Stage(0, self.make_strategy(welcome), rank, True, self._state_limit_nbytes)
        self.workers = len(neighbours) + 1
        for member in neighbours:
            self.transport.admit(member)
            self._commands.append(PeerJoined(member.rank))

    def settled(self) -> bool:
        """Everybody left has received all that was published."""
        return self._stage is not None and not self._commands and self._stage.settled()

    def pause(self, idle: Callable[[], None], over: Callable[[], bool]) -> None:
        """Until something happens, or for a moment."""
        self._take_over()
        idle()
        with self.facts.changed:
            if self.facts.failure is not None:
                raise self.facts.failure
            if not over() and not self._mail_waits():
                self.facts.changed.wait(TICK_S)
        idle()

    def wait(
        self,
        until: Callable[[Facts], bool],
        idle: Callable[[], None],
        again: Callable[[], None] | None = None,
        needs_supervisor: bool = True,
    ) -> None:
        """Wait for a fact, calling ``idle`` (which includes what arrives, and serves snapshots) meanwhile, and ``again``
        now and then: what was asked for may have been lost. Raises what went wrong if the fact can no longer come."""
        facts, asked_s = self.facts, self.clock.now()
        self._take_over()
        while True:
            idle()
            if again is not None and self.clock.now() - asked_s > AGAIN_S:
                again()
                asked_s = self.clock.now()
            with facts.changed:
                if until(facts):
                    return
                if facts.failure is not None:
                    raise facts.failure
                if facts.supervisor_silent and needs_supervisor:
                    raise SupervisorLost("the supervisor fell silent while this worker needed an answer of it")
                if not self._mail_waits():
                    facts.changed.wait(TICK_S)

    def _mail_waits(self) -> bool:
        return self._stage is not None and bool(self._stage.mail)

    def _command(self, command: Command) -> None:
        self._commands.append(command)
        if self.clock.now() - self._pumped_s >= TICK_S:  # else it goes with the next pump, very soon
            self.transport.wake()

    def _take_over(self) -> None:
        """The training thread is going to wait: the communication thread does the work."""
        if self._pumped_s > float("-inf"):
            self._pumped_s = float("-inf")
            self._pump_wanted.clear()
            self._rested.set()
            self.transport.wake()

    # -------------------------------------------------------------------------------- the communication thread

    def _run(self) -> None:
        if sys.platform == "linux":  # as the transport's own thread: see there
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        try:
            while not self._may_end():
                if self._pump_wanted.is_set() or self.clock.now() - self._pumped_s < TICK_S:
                    self._pump_wanted.clear()
                    self._rested.wait(TICK_S)  # the training thread does the work while it comes by often
                    self._rested.clear()
                    continue
                with self._transport_lock:
                    self._work(TICK_S)
        except BaseException as error:
            self.facts.fail(error)
        finally:
            self.transport.close(self._closing or 0.0)

    def _work(self, timeout_s: float | None) -> None:
        """Take in what came (``None``: not now), carry out what was asked for, and see what time it is."""
        if timeout_s is not None:
            for envelope in self.transport.receive(timeout_s):
                self._on_envelope(envelope)
        while self._commands:
            self._on_command(self._commands.popleft())
        while self._unsaid and self.transport.send(SUPERVISOR, self._unsaid[0]):
            self._unsaid.popleft()
        self._on_time(self.clock.now())

    def _may_end(self) -> bool:
        """Asked to close, and all is said; or there was time enough to say it, and nobody takes it."""
        if self._closing is None:
            return False
        if self._closing_s is None:
            self._closing_s = self.clock.now()
        all_said = not self._commands and not self._unsaid
        return all_said or self.clock.now() - self._closing_s > self._closing

    def _on_command(self, command: Command) -> None:
        match command:
            case _Say(message, payloads):
                self._unsaid.append(encode(message, payloads))
            case _Grant(state, have):
                tail = tuple(self.stage.state.tail(have))
                data = pack(State(state.vector, state.still, state.grid, tail))
                for rank, chunk, payload in self._donation.grant(data, have):
                    self._send(rank, chunk, [payload])
            case _Post(stage, event):
                self._tell(event, stage)
            case _Advance(protocol):
                self._on_advance(protocol)
            case event:
                self._tell(event)

    def _on_advance(self, protocol: Protocol) -> None:
        former = self.stage
        stage = Stage(former.phase + 1, protocol, self.rank, True, self._state_limit_nbytes)
        self._former = former
        self._arrivals.clear()
        self.facts.note(drained=False)
        self._stage = stage
        for rank in former.state.gone:
            self._tell(PeerGone(rank))
        for rank in former.state.links:
            self._tell(PeerJoined(rank))
        early = list(self._early)
        self._early.clear()
        for sender, message, payloads in early:
            self._on_peer(sender, message, payloads)
        self.facts.note()

    def _on_envelope(self, envelope: Envelope) -> None:
        try:
            if envelope.sender == SUPERVISOR:
                message, payloads = decode(envelope.frames, SupervisorMessage)
                self._on_supervisor(message, payloads)
            elif self._stage is not None:
                message, payloads = decode(envelope.frames, PeerMessage)
                self._on_peer(envelope.sender, message, payloads)
        except MalformedMessage:
            self.malformed[envelope.sender] = self.malformed.get(envelope.sender, 0) + 1

    def _on_supervisor(self, message: Any, payloads: list[bytes]) -> None:
        now = self.clock.now()
        self.facts.answered_s = now
        if isinstance(message, Pulse):
            self._detector.beat(now)
            self.facts.supervisor_silent = False
        else:
            self._detector.seen(now)
        if isinstance(message, Welcome) and self._stage is None:
            self.rank = message.rank
            self._stage = Stage(0, self.make_strategy(message), message.rank, False, self._state_limit_nbytes)
        self.facts.learn(message, payloads)
        if isinstance(message, Roster) and self.facts.roster is message:
            self._on_roster(message)

    def _on_roster(self, roster: Roster) -> None:
        known = self.stage.state
        for gone in roster.gone:
            if gone.rank not in known.gone and gone.rank != self.rank:
                self.transport.forget(gone.rank)
                self._donation.forget(gone.rank)
                self._tell_all(PeerGone(gone.rank))
        for member in roster.members:
            if member.rank != self.rank and member.rank not in known.links:
                self.transport.admit(member)
                self._tell_all(PeerJoined(member.rank))
        self.workers = len(roster.members)

    def _on_peer(self, sender: int, message: Any, payloads: list[bytes]) -> None:
        match message:
            case Updates() | Report() | Parcel() | Receipt():
                if isinstance(message, Parcel | Receipt) or (isinstance(message, Report) and message.position >= 0):
                    self._donation.forget(sender)
                self._on_protocol(sender, message, payloads)
            case StateRequest():
                answer = self._donation.request(sender, message)
                if answer is not None:
                    self._send(sender, answer[0], [answer[1]])
                elif self._donation.waiting:
                    self.snapshot_wanted = True
                    with self.facts.changed:
                        self.facts.changed.notify_all()
            case StateChunk():
                if self._fetch is not None:
                    self._fetch.arrived(sender, message, payloads)
                    self._fetch_on(self.clock.now())

    def _on_protocol(self, sender: int, message: Updates | Report | Parcel | Receipt, payloads: list[bytes]) -> None:
        """For the phase that it belongs to: the present one, the one before, or one that is still to come here."""
        if message.phase > self.stage.phase:
            self._early.append((sender, message, payloads))
        elif message.phase == self.stage.phase:
            self._tell(Arrived(sender, message, payloads))
        elif self._former is not None and message.phase == self._former.phase:
            self._tell(Arrived(sender, message, payloads), self._former)

    def _on_time(self, now: float) -> None:
        if self.facts.welcome is None and self._stage is None:
            self._watch_admission(now)
        if now - self._ticked_s >= TICK_S:
            self._ticked_s = now
            if self._stage is not None:
                self._tell_all(Tick())
                self._fetch_on(now)
        if self._stage is not None and now - self._beat_s >= HEARTBEAT_S:
            self._beat_s = now
            self._send(SUPERVISOR, Heartbeat(self.statistics(), self.sketch()), ())
            if self._detector.suspects(now) and not self.facts.supervisor_silent:
                self.facts.note(supervisor_silent=True)

    def _watch_admission(self, now: float) -> None:
        """A wrong token or address must not look like a supervisor that takes its time."""
        if getattr(self.transport, "supervisor_status", None) == "refused":
            self.facts.fail(Refused("the supervisor does not take this token: is it the token of this run?"))
        elif now - self._began_s > self.patience_s and self.facts.answered_s is None:
            self.facts.fail(
                SupervisorLost(f"no answer from the supervisor in {self.patience_s:.0f} s: is it up, and reachable?")
            )

    def _fetch_on(self, now: float) -> None:
        """Go on with taking over the donor's state, if there is one to take and every neighbour holds for us."""
        donor = self.facts.donor
        if self._fetched or donor is None or donor < 0:
            return
        if self._fetch is None or self._fetch.donor != donor:
            self._fetch = Fetch(donor, self._state_limit_nbytes)
        if self._fetch.complete:
            self._fetched = True
            self.facts.note(state=(self._fetch.data(), self._fetch.have))
            self._fetch = None  # the training thread alone holds the state now, and lets it go when it is in the model
        elif self.stage.state.attached() and donor in self.stage.state.links:
            request = self._fetch.due(now)
            if request is not None:
                self._send(donor, request, ())

    def _tell_all(self, event: Event) -> None:
        """Also the phase before: it goes on until everybody is through with it."""
        if self._former is not None:
            self._tell(event, self._former)
        self._tell(event)

    def _tell(self, event: Event, stage: Stage | None = None) -> None:
        stage = stage or self.stage
        self._do(stage.on(event, self.clock.now()), stage)
        if stage is not self._stage:
            return
        self.staleness = stage.state.staleness
        pace = stage.pace()
        if pace is not None:
            self._pace(*pace)

    def _pace(self, horizon: float, fastest: int) -> None:
        if (horizon, fastest) != (self.horizon, self.fastest):
            self.horizon, self.fastest = horizon, fastest
            with self.facts.changed:
                self.facts.changed.notify_all()

    def _do(self, actions: list[Action], stage: Stage) -> None:
        blocked: set[int] = set()
        for action in actions:
            match action:
                case Send(to, message, payloads):
                    if to in blocked or self._send(to, stage.tag(message), payloads):
                        continue
                    if isinstance(message, Updates | Parcel):
                        blocked.add(to)
                        self._tell(Blocked(to, message), stage)
                case Include():
                    self._arrivals.append(action)
                case Deliver():
                    stage.deliver(action)
                    self.facts.note()
                case Drained():
                    self.facts.note(drained=True)

    def _send(self, to: int, message: Message, payloads: Sequence[bytes | memoryview]) -> bool:
        frames = encode(message, payloads)
        sent = self.transport.send(to, frames)
        if sent and to != SUPERVISOR:
            self.bytes_sent += nbytes(frames)
        return sent


def _nothing() -> None:
    pass
