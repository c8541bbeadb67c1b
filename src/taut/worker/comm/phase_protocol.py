"""What the communication thread runs in one phase: a stream with channels beside it, or channels under a method."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from taut.core.events import Action, Arrived, Blocked, Event, Heard, PeerAhead, PeerGone, PeerJoined, Tell, Tick
from taut.core.messages import Parcel, Receipt, Report, Updates
from taut.strategies.allreduce.final_average import LANE
from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.broadcast.state import BroadcastState
from taut.strategies.delivery.channels import Channels, ChannelsState
from taut.worker.comm.backlog import Backlog

Protocol = Broadcast | Channels
Tagged = Updates | Report | Parcel | Receipt


class PhaseProtocol:
    """``phase`` numbers it. Deliveries wait in ``mail`` and (those of the average at its end) ``settling_mail``, or go to
    ``on_deliver`` at once, in the communication thread."""

    def __init__(self, phase: int, protocol: Protocol, rank: int, synced: bool, limit_nbytes: int) -> None:
        self.phase, self.protocol = phase, protocol
        self.state: BroadcastState | ChannelsState = protocol.start(rank, synced)
        self.mail: deque[Heard] = deque()
        self.backlog = Backlog(limit_nbytes)  # of mail
        self.settling_mail: deque[Heard] = deque()  # some begin that average before others have drained
        self.on_deliver: Callable[[Heard], None] | None = None
        self._beside: tuple[Channels, ChannelsState] | None = None
        if not isinstance(protocol, Channels):
            channels = Channels(limit_nbytes=limit_nbytes)
            self._beside = (channels, channels.start(rank, synced=True))

    @property
    def bounded(self) -> bool:
        return isinstance(self.protocol, Broadcast) and self.protocol.bounded

    def pace(self) -> tuple[float, int] | None:
        """Where delay is bounded: how far clocks may go, and the largest that is known."""
        if isinstance(self.protocol, Broadcast) and self.protocol.bounded and isinstance(self.state, BroadcastState):
            return self.protocol.horizon(self.state), self.state.fastest()
        return None

    def on(self, event: Event, now: float) -> list[Action]:
        """Tell the protocols whom it concerns."""
        protocol: Any = self.protocol  # the state is always its own
        if self._beside is None:
            actions: list[Action] = protocol.on(self.state, event, now)
            return actions
        channels, state = self._beside
        alone = isinstance(event, Tell) or (
            isinstance(event, Arrived | Blocked) and isinstance(event.message, Parcel | Receipt)
        )
        if alone:
            return channels.on(state, event, now)
        actions = protocol.on(self.state, event, now)
        if isinstance(event, PeerJoined | PeerGone | PeerAhead | Tick):
            actions = actions + channels.on(state, event, now)
        return actions

    def tag(self, message: Tagged) -> Tagged:
        """The message as one of this phase."""
        return msgspec.structs.replace(message, phase=self.phase) if self.phase else message

    def deliver(self, item: Heard) -> None:
        if item.note.part != LANE and self.on_deliver is not None:
            self.on_deliver(item)
            return
        self.backlog.came(item.sender, len(item.payload))
        (self.settling_mail if item.note.part == LANE else self.mail).append(item)

    def take_mail(self) -> Heard:
        """The next of ``mail``, for the training thread."""
        return self._taken(self.mail.popleft())

    def take_settling_mail(self) -> Heard:
        return self._taken(self.settling_mail.popleft())

    def _taken(self, item: Heard) -> Heard:
        self.backlog.taken(item.sender, len(item.payload))
        return item

    def settled(self) -> bool:
        """Everybody left has received all of ours."""
        return self.state.settled() and (self._beside is None or self._beside[1].settled())
