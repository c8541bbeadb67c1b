"""What the communication thread runs in each phase of a run: a stream and channels beside it, or a method's channels.

Messages and events go to the phase that they belong to, and its actions are carried out. All of it belongs to the
communication thread; the training thread takes what arrived, and reads the figures.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence

import msgspec

from taut.core import events as ev
from taut.core.clock import Clock
from taut.core.messages import Parcel, Receipt, Report, Updates
from taut.core.staleness_counts import StalenessCounts
from taut.errors import MalformedMessage
from taut.strategies.allreduce.final_average import FINAL_AVERAGE_PART
from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.broadcast.state import BroadcastState
from taut.strategies.delivery.channels import Channels, ChannelsState
from taut.transport.framing import nbytes
from taut.worker.comm.rejections import Rejections
from taut.worker.comm.run_status import RunStatus

Protocol = Broadcast | Channels
Tagged = Updates | Report | Parcel | Receipt
SendTo = Callable[[int, Tagged, Sequence[bytes | memoryview]], bool]
OVERHEAD_NBYTES = 512  # of a message that waits, beside its payload
MOST_EARLY = 4096


class Backlog:
    """Bytes of each sender that wait for the training thread; beyond a limit nothing more is taken from that sender.

    A message that is dropped so was not received: its sender keeps it, and sends it again. So a sender that keeps to its
    window never meets the limit, one that is much faster than this worker is slowed down, and one that floods it cannot
    use up its memory. ``came`` is called by the thread that communicates, ``taken`` by the one that trains: no count has
    two writers.

    >>> backlog = Backlog(limit_nbytes=2000)
    >>> backlog.came(1, 1500); backlog.full(1), backlog.full(2)
    (True, False)
    >>> backlog.taken(1, 1500); backlog.full(1)
    False
    """

    def __init__(self, limit_nbytes: int) -> None:
        self.limit_nbytes = limit_nbytes
        self._came: Counter[int] = Counter()
        self._taken: Counter[int] = Counter()

    def came(self, sender: int, nbytes: int) -> None:
        self._came[sender] += nbytes + OVERHEAD_NBYTES

    def taken(self, sender: int, nbytes: int) -> None:
        self._taken[sender] += nbytes + OVERHEAD_NBYTES

    def full(self, sender: int) -> bool:
        """Return whether so much of this sender waits that no more can be taken."""
        return self._came[sender] - self._taken[sender] > self.limit_nbytes


class EarlyMessages:
    """Messages of the next phase, until this worker comes to it. A message that does not fit into ``limit_nbytes``, or is
    one too many, is dropped: it is sent again."""

    def __init__(self, limit_nbytes: int) -> None:
        self._limit_nbytes = limit_nbytes
        self._waiting: list[tuple[int, Tagged, list[bytes]]] = []
        self._nbytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(self, sender: int, message: Tagged, payloads: list[bytes], phase: int) -> None:
        """Keep a message. ``phase``: the present one; nobody is more than one ahead of it."""
        if message.phase > phase + 1:
            raise MalformedMessage(f"a message of phase {message.phase}, in phase {phase}")
        if len(self._waiting) < MOST_EARLY and self._nbytes < self._limit_nbytes:
            self._nbytes += nbytes(payloads)
            self._waiting.append((sender, message, payloads))

    def take(self) -> list[tuple[int, Tagged, list[bytes]]]:
        """Return all messages, in order: their phase has come."""
        taken, self._waiting, self._nbytes = self._waiting, [], 0
        return taken


class PhaseProtocol:
    """The protocol of phase number ``phase``, and its state: ``stream`` of a strategy whose workers apply every update,
    and ``channels``, for the messages of methods. Those wait in ``mail`` and (of the average at the end of the phase)
    ``final_mail``, or go to ``on_deliver`` at once, in the communication thread."""

    def __init__(self, phase: int, protocol: Protocol, rank: int, synced: bool, limit_nbytes: int) -> None:
        self.phase = phase
        self.stream = None if isinstance(protocol, Channels) else protocol
        self.channels = protocol if isinstance(protocol, Channels) else Channels(limit_nbytes=limit_nbytes)
        self.channels_state = self.channels.start(rank, synced or self.stream is not None)
        self.stream_state = self.stream.start(rank, synced) if self.stream is not None else None
        self.mail: deque[ev.Heard] = deque()
        self.backlog = Backlog(limit_nbytes)  # of mail
        self.final_mail: deque[ev.Heard] = deque()  # some begin that average before others have drained
        self.on_deliver: Callable[[ev.Heard], None] | None = None

    @property
    def state(self) -> BroadcastState | ChannelsState:
        """Return the state of the stream, or else of the channels."""
        return self.stream_state or self.channels_state

    @property
    def bounded(self) -> bool:
        return self.stream is not None and self.stream.bounded

    def take_mail(self) -> ev.Heard:
        """Return the next of ``mail``, for the training thread."""
        return self._taken(self.mail.popleft())

    def take_final_mail(self) -> ev.Heard:
        """Return the next of ``final_mail``, for the training thread."""
        return self._taken(self.final_mail.popleft())

    def _taken(self, heard: ev.Heard) -> ev.Heard:
        self.backlog.taken(heard.sender, len(heard.payload))
        return heard

    def delivered(self) -> bool:
        """Return whether all that are left have received everything of ours."""
        return self.state.delivered() and self.channels_state.delivered()


class PhaseProtocols:
    """The present phase and the one before. ``send`` is to another worker; False: there is no room just now."""

    def __init__(self, status: RunStatus, clock: Clock, send: SendTo, limit_nbytes: int, rejections: Rejections) -> None:
        self._status, self._clock, self._send, self._limit_nbytes = status, clock, send, limit_nbytes
        self._rejections = rejections
        self.present: PhaseProtocol | None = None  # from the welcome on
        self.previous: PhaseProtocol | None = None  # of the phase before: somebody may be behind, and need an answer
        self.staleness = 1.0
        self.late = StalenessCounts()  # of the present phase
        self.steps_per_turn = 1  # an iteration of the stream is so many steps
        self.horizon = math.inf  # beyond it a worker's clock may not go (strategies that bound the delay)
        self.fastest = 0  # the largest clock that is known
        self.early = EarlyMessages(limit_nbytes)
        self.members: dict[int, int] = {}  # the others in the run, and the phase in which each begins
        self.gone: set[int] = set()
        self.arrivals: deque[ev.Include] = deque()
        self._backlog = Backlog(limit_nbytes)  # of arrivals
        self._rank = -1

    @property
    def phase_protocol(self) -> PhaseProtocol:
        assert self.present is not None
        return self.present

    def begin(self, protocol: Protocol, rank: int, synced: bool, phase: int = 0) -> None:
        """Start as worker ``rank`` in the run's present ``phase``; start again where the run has gone on to another phase
        before this worker has the state. ``synced``: it has the state already."""
        self._rank = rank
        self.previous = None
        self._enter(PhaseProtocol(phase, protocol, rank, synced, self._limit_nbytes))

    def advance(self, protocol: Protocol) -> None:
        """Go to the next phase."""
        self.previous = self.phase_protocol
        self._enter(PhaseProtocol(self.phase_protocol.phase + 1, protocol, self._rank, True, self._limit_nbytes))

    def _enter(self, target: PhaseProtocol) -> None:
        """Tell the phase of all that are in the run by then, or have been."""
        self.arrivals.clear()
        self.late = StalenessCounts()
        self._backlog = Backlog(self._limit_nbytes)
        self._status.note(drained=False)
        self.present = target
        for rank in sorted(self.gone):
            self._tell_both(ev.PeerGone(rank), target)
        for rank, first_phase in self.members.items():
            if first_phase <= target.phase:
                self._tell_both(ev.PeerJoined(rank), target)
        for sender, message, payloads in self.early.take():
            try:
                self.arrived(sender, message, payloads)
            except MalformedMessage as error:
                self._rejections.add(sender, str(error))
        self._status.note()

    def met(self, rank: int, first_phase: int) -> None:
        """Take note that worker ``rank`` takes part from phase ``first_phase``. Called again with a later phase if the
        earlier one ended before that worker had a state."""
        before = self.members.get(rank)
        if before is not None and first_phase <= before:
            return
        self.members[rank] = first_phase
        for target in filter(None, (self.previous, self.present)):
            knows = before is not None and before <= target.phase
            if first_phase > target.phase and knows:
                self._tell_both(ev.PeerAhead(rank), target)
            elif first_phase <= target.phase and not knows:
                self._tell_both(ev.PeerJoined(rank), target)

    def lost(self, rank: int) -> None:
        """Take note that worker ``rank`` is gone, in whichever phase it was."""
        self.members.pop(rank, None)
        self.gone.add(rank)
        self.tell_all(ev.PeerGone(rank))

    def take(self) -> list[ev.Include]:
        """Return the updates that have arrived, in the order to include them. For the training thread."""
        taken: list[ev.Include] = []
        while self.arrivals:
            item = self.arrivals.popleft()
            self._backlog.taken(item.origin, item.nbytes)
            taken.append(item)
        return taken

    def arrived(self, sender: int, message: Tagged, payloads: list[bytes]) -> None:
        """Take a message for the phase that it belongs to: the present one, the one before, or the next one."""
        target, previous = self.phase_protocol, self.previous
        if message.phase > target.phase:
            behind = not self._status.started or self.members.get(sender, 0) >= message.phase
            if message.phase == target.phase + 1 or not behind:  # else we are to begin later, or it did: it is sent again
                self.early.keep(sender, message, payloads, target.phase)
            return
        if message.phase < target.phase:
            if previous is None or message.phase != previous.phase:
                return
            target = previous
        elif isinstance(message, Updates | Parcel) and (self._backlog.full(sender) or target.backlog.full(sender)):
            return  # it will be sent again
        self.tell(ev.Arrived(sender, message, payloads), target, isinstance(message, Parcel | Receipt))

    def tell_all(self, event: ev.PeerGone | ev.Tick) -> None:
        """Tell the present phase, and the one before, which goes on until everybody is through with it."""
        for target in filter(None, (self.previous, self.present)):
            self._tell_both(event, target)

    def _tell_both(self, event: ev.PeerJoined | ev.PeerGone | ev.PeerAhead | ev.Tick, target: PhaseProtocol) -> None:
        self.tell(event, target)
        if target.stream is not None:
            self.tell(event, target, channels=True)

    def tell(  # noqa: PLR0912  # one case per action
        self, event: ev.Event, target: PhaseProtocol | None = None, channels: bool = False
    ) -> None:
        """Tell the stream of a phase (None: the present one) that ``event`` happened, and carry out the answer. Tell the
        channels where there is no stream, or where they are meant."""
        target = target or self.phase_protocol
        stream, state = (None, None) if channels else (target.stream, target.stream_state)
        if stream is None or state is None:
            actions = target.channels.on(target.channels_state, event, self._clock.now())
        else:
            actions = stream.on(state, event, self._clock.now())
        blocked: set[int] = set()
        for action in actions:
            match action:
                case ev.Send(to, message, payloads):
                    tagged = msgspec.structs.replace(message, phase=target.phase) if target.phase else message
                    if to in blocked or self._send(to, tagged, payloads):
                        continue
                    if isinstance(message, Updates | Parcel):
                        blocked.add(to)
                        self.tell(ev.Blocked(to, message), target, isinstance(message, Parcel))
                case ev.Include() if target is self.present:  # the phase before is over here, and complete
                    self._backlog.came(action.origin, action.nbytes)
                    self.arrivals.append(action)
                case ev.Heard(sender, note, payload):
                    if note.part != FINAL_AVERAGE_PART and target.on_deliver is not None:
                        target.on_deliver(action)
                    else:
                        target.backlog.came(sender, len(payload))
                        (target.final_mail if note.part == FINAL_AVERAGE_PART else target.mail).append(action)
                    self._status.note()
                case ev.PayloadRefused(sender, why):
                    self._rejections.add(sender, why)
                case ev.Disputed(origin, other):
                    self._rejections.dispute(origin, other)
                case ev.Drained() if target is self.present:  # the one before says so again when somebody dies after it
                    self._status.note(drained=True)
        if stream is not None and state is not None and target is self.present:
            self._note_pace(stream, state)

    def _note_pace(self, stream: Broadcast, state: BroadcastState) -> None:
        self.staleness = state.staleness
        while state.measured:
            self.late.add(state.measured.popleft() * self.steps_per_turn)
        if stream.bounded and (pace := (stream.horizon(state), state.fastest())) != (self.horizon, self.fastest):
            self.horizon, self.fastest = pace
            self._status.note()
