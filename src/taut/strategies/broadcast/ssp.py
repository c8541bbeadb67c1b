"""Stale synchronous parallel: complete communication, bounded delay.

    a worker goes on  iff  its clock <= slack + the slowest clock          clock: iterations that are behind it

Workers that train are never more than ``slack`` iterations apart. With slack 0 they go in lock-step; with a large slack
no worker ever waits, as in ``async``. Reports carry the clocks, and go out as soon as a clock moves. A worker that has
died, has ended or is still joining holds no other back; one that waits for data counts as level with the fastest. On a
sparse topology it is relayed, with the same bound (``tree/relay.py``, ``tree/clocks.py``).
Paper: Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from taut.core.events import Action, Event, Synced, Ticked
from taut.specs import check_whole
from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.broadcast.state import BroadcastState
from taut.strategies.info import ADVISED, Completeness, StrategyInfo, Variant


@dataclass(frozen=True)
class StaleSynchronous(Broadcast):
    """``--strategy ssp:3``: no worker gets more than 3 iterations ahead of the slowest.

    >>> from taut.core.events import Arrived, PeerJoined
    >>> from taut.core.messages import Report
    >>> strategy = StaleSynchronous(merge=b"".join, slack=1)
    >>> state = strategy.start(rank=0, synced=True)
    >>> _ = strategy.on(state, PeerJoined(1), now=0.0)
    >>> _ = strategy.on(state, Arrived(1, Report(0, 0, False, {}, [], -1, clock=4), []), now=0.0)
    >>> [strategy.on(state, Ticked(clock), now=0.0) is None or strategy.may_go(state) for clock in (4, 5, 6)]
    [True, True, False]
    """

    name = "ssp"
    info = StrategyInfo(Completeness.BOUNDED, (Variant("3", codecs=(ADVISED,)),), on_sparse="relay", floods=True)
    complete = True
    bounded = True

    slack: int = 3

    def __post_init__(self) -> None:
        check_whole(self, "slack", 0, "slack 0 is lock-step; for no bound at all take async")

    def horizon(self, state: BroadcastState) -> float:
        training = [link.clock for link in state.links.values() if not link.pending and link.final < 0]
        return min(training) + self.slack if training else math.inf

    def on(self, state: BroadcastState, event: Event, now: float) -> list[Action]:
        if isinstance(event, Synced):
            state.clock = state.fastest()  # a newcomer does not begin at zero: all others would wait for it
        elif isinstance(event, Ticked):
            state.clock = max(state.clock, event.clock)
            self._hurry(state)
        return super().on(state, event, now)

    def _hurry(self, state: BroadcastState) -> None:
        """Send reports at once, since others may wait for this clock. With a large slack not every tick is reported:
        up to a quarter of the slack is given up to save messages."""
        for link in state.links.values():
            link.report_due = True
            if state.clock - link.told_clock > self.slack // 4:
                link.reported_s = float("-inf")
