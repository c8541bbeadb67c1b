"""The communication thread's work: what comes is decoded and told to the protocols, what they answer is carried out.

One thread at a time does it (``node.py`` says which). It never touches the model: what is to be included waits in queues.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from taut.communication.framing import decode, encode, nbytes
from taut.communication.transport import Envelope, Transport
from taut.core.clock import Clock, MonotonicClock
from taut.core.detector import HEARTBEAT_S, Detector
from taut.core.events import (
    Action,
    Arrived,
    Blocked,
    Deliver,
    Drained,
    Event,
    Include,
    PeerGone,
    PeerJoined,
    Post,
    Send,
    Tick,
)
from taut.core.messages import (
    SUPERVISOR,
    Digest,
    Heartbeat,
    Message,
    Moved,
    Parcel,
    PeerMessage,
    Pulse,
    Receipt,
    Report,
    ReserveSeen,
    Returned,
    Roster,
    StateChunk,
    StateRequest,
    Statistics,
    SupervisorMessage,
    Updates,
    Welcome,
)
from taut.errors import MalformedMessage, Refused, SupervisorLost
from taut.strategies.method import Place
from taut.topologies.shape import Shape
from taut.worker.backlog import Backlog
from taut.worker.facts import Facts
from taut.worker.refusals import Refusals
from taut.worker.stage import Protocol, Stage
from taut.worker.state import State, pack
from taut.worker.transfer import Donation, Fetch

TICK_S = 0.05
ADMISSION_S = 60.0  # for the first answer: nothing was measured yet
SUPERVISOR_S = 120.0  # for a supervisor that is gone to come back, where nothing else was said


@dataclass(frozen=True, slots=True)
class Say:
    message: Message
    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Grant:
    state: State
    have: dict[int, int]


@dataclass(frozen=True, slots=True)
class PostIn:
    stage: Stage
    event: Post


@dataclass(frozen=True, slots=True)
class Advance:
    protocol: Protocol


Command = Event | Say | Grant | PostIn | Advance
MOST_SNAPSHOTS = 16
EARLY = 4096  # messages of a phase that this worker has not come to yet; what is beyond is sent again


class Courier:
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
        self.term = 0  # of the supervisor's lives
        self.renewals = 0  # how often something said to it may have been lost
        self.standing: Callable[[], Returned] | None = None  # asked when the supervisor comes back; from any thread
        self.supervisor_patience_s = SUPERVISOR_S
        self.workers = 1  # in the run, this one included
        self.staleness = 1.0
        self.horizon = math.inf  # beyond it a worker's clock may not go (strategies that bound the delay)
        self.fastest = 0  # the largest clock that is known
        self.bytes_sent = 0
        self.refusals = Refusals()  # of what others sent
        self.snapshot_wanted = False
        self._stage: Stage | None = None
        self._former: Stage | None = None  # of the phase before: somebody may be behind, and need an answer
        self._early: deque[tuple[int, Any, list[bytes]]] = deque(maxlen=EARLY)
        self._commands: deque[Command] = deque()
        self._arrivals: deque[Include] = deque()
        self._backlog = Backlog(state_limit_nbytes)  # of arrivals
        self._early_nbytes = 0
        self._snapshots: Counter[int] = Counter()  # that others asked for, per worker
        self._unsaid: deque[list[bytes]] = deque()  # for the supervisor, when it has no room
        self._seen = 0  # version of what is set aside for this worker, as the supervisor was told
        self._said = self._told = 0  # messages to and from the supervisor, without heartbeats and pulses
        self._lost = 0  # how often some to it did not come, as far as is known here
        self._last_words: list[bytes] | None = None  # how the replica ended
        self._donation = Donation()
        self._fetch: Fetch | None = None
        self.fetches = True  # a donor's state; else the strategy sees to it
        self._fetched = False
        self._state_limit_nbytes = state_limit_nbytes
        self._ticked_s = self._beat_s = float("-inf")
        self._beaten = self.acknowledged = Statistics()  # as said last, and as the supervisor has heard
        self._began_s = self.clock.now()
        self._detector = Detector(self._began_s)  # of the supervisor
        self.patience_s = ADMISSION_S

    def supervisor_lost(self) -> bool:
        """It is silent for so long that nobody waits for it any more."""
        since_s = self.facts.silent_since_s
        return since_s is not None and self.clock.now() - since_s > self.supervisor_patience_s

    @property
    def bounded(self) -> bool:
        return self._stage is not None and self._stage.bounded

    def place(self, shape: Shape) -> Place:
        """Where this worker stands among those who are ready, by the last roster, wired as ``shape`` says."""
        roster = self.facts.roster
        assert roster is not None
        ready = {member.rank for member in roster.members if member.ready}
        return Place(self.rank, tuple(sorted(ready | {self.rank})), shape, roster.version)

    @property
    def stage(self) -> Stage:
        """Of the present phase; there is one from the welcome on."""
        assert self._stage is not None
        return self._stage

    def work(self, timeout_s: float | None) -> None:
        """Take in what came (``None``: not now), carry out what was asked for, and see what time it is."""
        if timeout_s is not None:
            for envelope in self.transport.receive(timeout_s):
                self._on_envelope(envelope)
        self.carry_out()
        while self._unsaid and self.transport.send(SUPERVISOR, self._unsaid[0]):
            self._unsaid.popleft()
            self._said += 1
        self._see_reserve()
        self._on_time(self.clock.now())

    def carry_out(self) -> None:
        """What was asked for."""
        while self._commands:
            self._on_command(self._commands.popleft())

    def _see_reserve(self) -> None:
        """Tell the supervisor that a new reserve is seen, after everything that was said before it came: what was taken
        of the reserve before is among that."""
        version = self.facts.reserve.version
        if version > self._seen and not self._unsaid and self._send(SUPERVISOR, ReserveSeen(version, self._said), ()):
            self._seen = version

    def _on_command(self, command: Command) -> None:
        match command:
            case Say(message, payloads):
                self._unsaid.append(encode(message, payloads))
                if isinstance(message, Digest):
                    self._last_words = self._unsaid[-1]
            case Grant(state, have):
                tail = tuple(self.stage.state.tail(have))
                data = pack(State(state.vector, state.still, state.grid, tail))
                for rank, chunk, payload in self._donation.grant(data, have):
                    self._send(rank, chunk, [payload])
            case PostIn(stage, event):
                self._tell(event, stage)
            case Advance(protocol):
                self._on_advance(protocol)
            case event:
                self._tell(event)

    def _on_advance(self, protocol: Protocol) -> None:
        former = self.stage
        stage = Stage(former.phase + 1, protocol, self.rank, True, self._state_limit_nbytes)
        self._former = former
        self._arrivals.clear()
        self._backlog = Backlog(self._state_limit_nbytes)
        self.facts.note(drained=False)
        self._stage = stage
        for rank in former.state.gone:
            self._tell(PeerGone(rank))
        for rank in former.state.links:
            self._tell(PeerJoined(rank))
        early = list(self._early)
        self._early.clear()
        self._early_nbytes = 0
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
        except MalformedMessage as error:
            self.refusals.add(envelope.sender, str(error))

    def _on_supervisor(self, message: Any, payloads: list[bytes]) -> None:
        now = self.clock.now()
        self.facts.answered_s = now
        if isinstance(message, Pulse):
            self._detector.beat(now)
            self.acknowledged = self._beaten
            self._hear_pulse(message)
        else:
            self._detector.seen(now)
            self._told += not isinstance(message, Moved)
        if self.facts.silent_since_s is not None:
            self.facts.heard_again_s, self.facts.silent_since_s = now, None
        if isinstance(message, Moved):
            self._follow(message)
        if isinstance(message, Welcome) and self._stage is None:
            self.rank, self.term = message.rank, message.term
            self._stage = Stage(0, self.make_strategy(message), message.rank, False, self._state_limit_nbytes)
            getattr(self.transport, "admitted", _nothing)()
        self.facts.learn(message, payloads)
        if isinstance(message, Roster) and self.facts.roster is message:
            self._on_roster(message)

    def _hear_pulse(self, pulse: Pulse) -> None:
        """A supervisor that came back does not know what was said last, and a connection that broke may have taken
        something with it, either way: say where we stand, and our last words again."""
        back, lost = pulse.term > self.term, (pulse.told, pulse.lost) != (self._told, self._lost)
        if pulse.term < self.term or not (back or lost) or self.standing is None:
            return
        self.term, self._told, self._lost = pulse.term, pulse.told, pulse.lost
        self.renewals += 1
        if back:
            self._unsaid.clear()  # what was on its way to the one before
        standing = msgspec.structs.replace(self.standing(), issued=pulse.issued)
        self._unsaid.append(encode(standing, ()))
        if self._last_words is not None:
            self._unsaid.append(self._last_words)
        self.facts.note()

    def _follow(self, moved: Moved) -> None:
        """To another address. Its pulse there tells the rest."""
        repoint = getattr(self.transport, "repoint", None)
        if moved.term > self.term and repoint is not None:
            repoint(moved.address)

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
                self._count_snapshots(sender, message)
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
            self._keep_early(sender, message, payloads)
        elif message.phase == self.stage.phase:
            if isinstance(message, Updates | Parcel) and (self._backlog.full(sender) or self.stage.backlog.full(sender)):
                return  # it will be sent again
            self._tell(Arrived(sender, message, payloads))
        elif self._former is not None and message.phase == self._former.phase:
            self._tell(Arrived(sender, message, payloads), self._former)

    def _keep_early(self, sender: int, message: Updates | Report | Parcel | Receipt, payloads: list[bytes]) -> None:
        """Nobody is more than one phase ahead; and what does not fit here is sent again."""
        if message.phase > self.stage.phase + 1:
            raise MalformedMessage(f"a message of phase {message.phase}, in phase {self.stage.phase}")
        if len(self._early) < EARLY and self._early_nbytes < self._state_limit_nbytes:
            self._early_nbytes += nbytes(payloads)
            self._early.append((sender, message, payloads))

    def _count_snapshots(self, sender: int, request: StateRequest) -> None:
        """A snapshot costs the training thread time, and a newcomer needs one, or another where its donor died."""
        donation = self._donation
        if request.offset == 0 and sender not in donation.granted and sender not in donation.waiting:
            self._snapshots[sender] += 1
            if self._snapshots[sender] > MOST_SNAPSHOTS:
                raise MalformedMessage(f"the state was asked for {self._snapshots[sender]} times")

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
            complaints = self.refusals.complaints(getattr(self.transport, "excess", {}))
            self._beaten = self.statistics()
            self._send(SUPERVISOR, Heartbeat(self._beaten, self.sketch(), complaints, self._said), ())
            if self._detector.suspects(now) and self.facts.silent_since_s is None:
                self.facts.note(silent_since_s=now)

    def _watch_admission(self, now: float) -> None:
        """A wrong token or address must not look like a supervisor that takes its time."""
        status = getattr(self.transport, "supervisor_status", None)
        if status == "refused":
            self.facts.fail(Refused("the supervisor does not take this token: is it the token of this run?"))
        elif status == "expired":
            remedy = "ask for a new one (`taut token new RUN`, where the run's folder is)"
            self.facts.fail(Refused(f"this token of the run has expired or was revoked: {remedy}"))
        elif now - self._began_s > self.patience_s and self.facts.answered_s is None:
            self.facts.fail(
                SupervisorLost(f"no answer from the supervisor in {self.patience_s:.0f} s: is it up, and reachable?")
            )

    def _fetch_on(self, now: float) -> None:
        """Go on with taking over the donor's state, if there is one to take and every neighbour holds for us."""
        donor = self.facts.donor
        if self._fetched or not self.fetches or donor is None or donor < 0:
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
                    self._backlog.came(action.origin, len(action.payload))
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
