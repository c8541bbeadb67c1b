"""Reliable channels: what one worker posts to another arrives once, in order, whatever the network loses or repeats.

The ground under all methods that exchange vectors. Parcels of a channel are numbered; the receiver takes them in order
and says how far it has come, with its own parcels or in a ``Receipt``; what is overdue is sent again from there, all of
it (go-back-N: a connection loses all that was under way, if anything). Large payloads are cut into parts, smaller ones
where the path is slow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from taut.core import events as ev
from taut.core.messages import Note, Parcel, Receipt
from taut.errors import MalformedMessage
from taut.strategies.delivery.path_rate import LEAST_PART_NBYTES, PathRate
from taut.strategies.delivery.retransmission import INITIAL_RTO_S, MOST_PATIENCE, deadline_s

Bytes = bytes | memoryview
FAR = 1 << 24  # parcels: far more than any window holds
PART_NBYTES = 64  # that a part takes beside its payload: a message in a billion empty parts is not small


@dataclass(slots=True)
class Channel:
    """Both directions of the link to one worker. ``queue`` holds all that it has not confirmed; the first ``sent`` of
    them are under way."""

    queue: deque[tuple[Parcel, Bytes]] = field(default_factory=deque)
    sent: int = 0
    flight_nbytes: int = 0
    next_seq: int = 1
    blocked: bool = False
    oldest_s: float | None = None  # since when the oldest unconfirmed parcel has been under way
    timed: tuple[int, float] | None = None  # a parcel whose round trip is being measured
    rtt_s: float = INITIAL_RTO_S / 4
    rate: PathRate = field(default_factory=PathRate)
    waiting_s: float | None = None  # since when nothing was confirmed, however often it was sent
    reach: int = 0  # the furthest parcel ever sent
    patience: int = 1
    mended: int = -1  # the gap that was last filled by sending again
    # from it
    received: int = 0
    parts: list[bytes] = field(default_factory=list)
    parts_nbytes: int = 0
    receipt_due: bool = False
    gap: bool = False
    gap_told: int = -1  # the last gap that it was told of
    unconfirmed: int = 0  # parcels that came since we last said so

    @property
    def rto_s(self) -> float:
        once_s = max(INITIAL_RTO_S, 4.0 * self.rtt_s) + self.rate.wait_s(self.flight_nbytes)
        return deadline_s(once_s, self.patience)

    def rewind(self) -> None:
        """Send everything that is unconfirmed again."""
        self.sent, self.flight_nbytes, self.oldest_s, self.timed = 0, 0, None, None


@dataclass(slots=True)
class ChannelsState:
    """One worker's channels. ``synced``: it has the run's state."""

    rank: int
    synced: bool
    links: dict[int, Channel] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    staleness: float = 1.0

    def attached(self) -> bool:
        """Return whether a state may be asked for: channels owe a newcomer nothing that came before it."""
        return True

    def delivered(self) -> bool:
        """Return whether everything posted has been received by all that are left."""
        return all(not channel.queue for channel in self.links.values())

    def posted(self) -> dict[int, int]:
        """Return how far each channel has come: the number of the next parcel. From any thread."""
        return {rank: channel.next_seq for rank, channel in list(self.links.items())}

    def received(self, marks: Mapping[int, int]) -> bool:
        """Return whether everything posted before ``marks`` has been received by all that are left, whatever was posted
        since."""
        queues = [(channel.queue, marks.get(rank, 0)) for rank, channel in list(self.links.items())]
        return all(next((parcel.seq for parcel, _ in queue.copy()), mark) >= mark for queue, mark in queues)

    def tail(self, have: dict[int, int]) -> list[ev.Include]:
        return []


@dataclass(frozen=True)
class Channels:
    """``window_nbytes`` bounds what is under way to one worker, and ``part_nbytes`` the parts that payloads are cut into
    (both are less over a slow path: ``path_rate.py``); no message of more than ``limit_nbytes`` is put together."""

    window_nbytes: int = 8 << 20
    part_nbytes: int = 1 << 20
    limit_nbytes: int = 1 << 32
    receipt_every: int = 4  # parcels, when nothing goes back anyway

    def start(self, rank: int, synced: bool) -> ChannelsState:
        return ChannelsState(rank, synced)

    def on(  # noqa: PLR0912  # one case per event
        self, state: ChannelsState, event: ev.Event, now: float
    ) -> list[ev.Action]:
        """Tell ``state`` (changed in place) that ``event`` happened; return what is to be done about it."""
        actions: list[ev.Action] = []
        match event:
            case ev.Tell(to, note, payload):
                channel = state.links.get(to)
                if channel is not None:  # else it is gone, and nobody misses the message
                    self._post(channel, note, payload)
                    self._pump(to, channel, now, actions)
            case ev.Arrived(sender, message, payloads):
                channel = state.links.get(sender)
                if channel is not None:
                    if isinstance(message, Parcel):
                        self._take(sender, channel, message, payloads[0], now, actions)
                    else:
                        _take_receipt(channel, message, now)
                    self._pump(sender, channel, now, actions)
            case ev.PeerJoined(rank):
                state.links.setdefault(rank, Channel())
            case ev.PeerGone(rank) | ev.PeerAhead(rank):
                state.links.pop(rank, None)
                state.gone |= {rank} if isinstance(event, ev.PeerGone) else set()
            case ev.Synced():
                state.synced = True
            case ev.Blocked(to, Parcel() as message):
                _blocked(state.links.get(to), message)
            case ev.Tick():
                for rank, channel in state.links.items():
                    channel.blocked = False
                    if channel.oldest_s is not None and now - channel.oldest_s > channel.rto_s:
                        channel.rewind()
                        channel.patience = min(MOST_PATIENCE, 2 * channel.patience)
                    channel.receipt_due |= channel.unconfirmed > 0
                    self._pump(rank, channel, now, actions)
            case _:
                raise AssertionError(f"{type(event).__name__} is no business of a channel")
        return actions

    def _post(self, channel: Channel, note: Note, payload: Bytes) -> None:
        view = memoryview(payload)
        part_nbytes = min(self.part_nbytes, channel.rate.part_nbytes)
        parts = max(1, -(-len(view) // part_nbytes))
        for part in range(parts):
            piece: Bytes = payload if parts == 1 else view[part * part_nbytes : (part + 1) * part_nbytes]
            channel.queue.append((Parcel(channel.next_seq, 0, note, part, parts), piece))
            channel.next_seq += 1

    def _pump(self, rank: int, channel: Channel, now: float, actions: list[ev.Action]) -> None:
        """Send what the window allows, then a receipt if one is owed."""
        window_nbytes = min(self.window_nbytes, channel.rate.window_nbytes)
        while channel.sent < len(channel.queue) and not channel.blocked:
            parcel, payload = channel.queue[channel.sent]
            nbytes = len(payload) + PART_NBYTES
            if channel.flight_nbytes and channel.flight_nbytes + nbytes > window_nbytes:
                break
            message = Parcel(parcel.seq, channel.received, parcel.note, parcel.part, parcel.parts)
            actions.append(ev.Send(rank, message, (payload,)))
            channel.sent += 1
            channel.flight_nbytes += nbytes
            channel.oldest_s = now if channel.oldest_s is None else channel.oldest_s
            channel.waiting_s = now if channel.waiting_s is None else channel.waiting_s
            if parcel.seq > channel.reach:  # what is sent again is not timed: either copy may be the one confirmed
                channel.reach = parcel.seq
                channel.timed = channel.timed or (parcel.seq, now)
            channel.unconfirmed, channel.receipt_due = 0, False
        if channel.receipt_due or channel.gap or channel.unconfirmed >= self.receipt_every:
            actions.append(ev.Send(rank, Receipt(channel.received, channel.gap)))
            channel.receipt_due = channel.gap = False
            channel.unconfirmed = 0

    def _take(
        self, sender: int, channel: Channel, parcel: Parcel, payload: bytes, now: float, actions: list[ev.Action]
    ) -> None:
        """Take a parcel if it is the next of its channel; the last part of a message makes it whole."""
        _confirmed(channel, parcel.received, now)
        if parcel.seq > channel.received + FAR:
            raise MalformedMessage(f"parcel {parcel.seq}, of which {channel.received} have come")
        if parcel.seq <= channel.received:
            channel.receipt_due = True  # a repetition: our receipt was lost, perhaps
            return
        if parcel.seq > channel.received + 1:
            channel.gap = channel.gap_told < channel.received
            channel.gap_told = channel.received
            return
        if parcel.part != len(channel.parts):
            raise MalformedMessage(f"part {parcel.part} where part {len(channel.parts)} of a message was due")
        # Only the last of a worker's parts is short: what a message may have beside its payload does not grow with it.
        nbytes = len(payload) + (PART_NBYTES if len(payload) < LEAST_PART_NBYTES else 0)
        if channel.parts_nbytes + nbytes > self.limit_nbytes + PART_NBYTES:
            raise MalformedMessage(f"a message of more than {self.limit_nbytes} bytes")
        channel.parts_nbytes += nbytes
        channel.received = parcel.seq
        channel.unconfirmed += 1
        channel.parts.append(payload)
        if len(channel.parts) == parcel.parts:
            whole = payload if parcel.parts == 1 else b"".join(channel.parts)
            channel.parts.clear()
            channel.parts_nbytes = 0
            actions.append(ev.Heard(sender, parcel.note, whole))


def _take_receipt(channel: Channel, receipt: object, now: float) -> None:
    if not isinstance(receipt, Receipt):
        raise MalformedMessage(f"{type(receipt).__name__} in a run whose workers talk through channels")
    _confirmed(channel, receipt.received, now)
    if receipt.gap and channel.sent and receipt.received > channel.mended:
        channel.mended = receipt.received  # once for each gap: what is on its way already may fill it
        channel.rewind()


def _confirmed(channel: Channel, received: int, now: float) -> None:
    queue = channel.queue
    if not queue or received < queue[0][0].seq:
        return
    if received >= channel.next_seq:
        raise MalformedMessage(f"a receipt for parcel {received}; the last one has number {channel.next_seq - 1}")
    nbytes = 0
    while queue and queue[0][0].seq <= received:
        _, payload = queue.popleft()
        nbytes += len(payload)
        if channel.sent:
            channel.sent -= 1
            channel.flight_nbytes -= len(payload) + PART_NBYTES
    if channel.timed is not None and received >= channel.timed[0]:
        channel.rtt_s += (now - channel.timed[1] - channel.rtt_s) / 8.0
        channel.timed = None
    if channel.waiting_s is not None:
        channel.rate.measure(nbytes, now - channel.waiting_s)
    channel.patience = max(1, channel.patience // 2)
    channel.oldest_s = channel.waiting_s = now if channel.sent else None


def _blocked(channel: Channel | None, message: Parcel) -> None:
    """Take note that the transport had no room: from this parcel on, nothing was sent."""
    if channel is None or not channel.queue:
        return
    channel.blocked = True
    channel.reach = min(channel.reach, message.seq - 1)
    keep = max(0, message.seq - channel.queue[0][0].seq)
    while channel.sent > keep:
        channel.sent -= 1
        channel.flight_nbytes -= len(channel.queue[channel.sent][1]) + PART_NBYTES
    if not channel.sent:
        channel.oldest_s = channel.timed = None
