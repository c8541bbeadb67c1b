"""Two workers' protocols on a virtual link, slow in each direction: what is sent waits for what was sent before it."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from taut.core import events as ev
from taut.transport.framing import encode, nbytes

TICK_S = 0.05


@dataclass
class SlowLink:
    """``protocol`` runs for two workers. ``on_action`` is told of what is no message. ``sent``: by sender and kind.
    ``lost(sender, now)``: whether what is sent now is lost, as when a connection breaks."""

    protocol: Any
    bytes_per_s: float
    latency_s: float = 0.01
    on_action: Callable[[int, ev.Action], None] = lambda rank, action: None
    lost: Callable[[int, float], bool] = lambda sender, now: False
    now: float = 0.0
    sent: Counter[tuple[int, str]] = field(default_factory=Counter)
    _free_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    _wire: list[tuple[float, int, int, ev.Event]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states = [self.protocol.start(rank, True) for rank in (0, 1)]
        for rank in (0, 1):
            self.tell(rank, ev.PeerJoined(1 - rank))

    def tell(self, rank: int, event: ev.Event) -> None:
        for action in self.protocol.on(self.states[rank], event, self.now):
            if isinstance(action, ev.Send):
                self._send(rank, action)
            else:
                self.on_action(rank, action)

    def until(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Let time go on until the condition holds."""
        while not condition():
            assert self.now < limit_s, f"not in {limit_s:.0f} s, with {dict(self.sent)}"
            self.now += TICK_S
            while self._wire and self._wire[0][0] <= self.now:
                _, _, to, event = heapq.heappop(self._wire)
                self.tell(to, event)
            for rank in (0, 1):
                self.tell(rank, ev.Tick())

    def total(self, rank: int) -> int:
        return sum(count for (sender, _), count in self.sent.items() if sender == rank)

    def _send(self, rank: int, action: ev.Send) -> None:
        frames = encode(action.message, action.payloads)
        self.sent[rank, type(action.message).__name__] += nbytes(frames)
        self._free_s[rank] = max(self.now, self._free_s[rank]) + nbytes(frames) / self.bytes_per_s
        if not self.lost(rank, self.now):
            event = ev.Arrived(rank, action.message, [bytes(frame) for frame in frames[1:]])
            heapq.heappush(self._wire, (self._free_s[rank] + self.latency_s, len(self._wire), 1 - rank, event))
