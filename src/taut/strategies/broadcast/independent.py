"""Workers that exchange nothing: the upper bound on throughput and the lower bound on quality for comparisons.

Membership, data leases and statistics work as always. Updates are not sent, so replicas differ."""

from __future__ import annotations

from taut.core.events import Action, Event, Published
from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.broadcast.state import BroadcastState
from taut.strategies.info import Completeness, StrategyInfo


class Independent(Broadcast):
    """``--strategy independent``: updates are dropped instead of published."""

    name = "independent"
    info = StrategyInfo(Completeness.NOTHING, one_model=False)
    complete = False
    returns = "mix"

    def on(self, state: BroadcastState, event: Event, now: float) -> list[Action]:
        return super().on(state, Published(None) if isinstance(event, Published) else event, now)
