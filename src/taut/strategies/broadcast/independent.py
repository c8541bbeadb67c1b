"""Workers that never talk: the bound on throughput that every comparison needs, and the floor on quality.

Membership, data leases and statistics work as always; updates stay at home, so replicas differ.
"""

from __future__ import annotations

from taut.core.events import Action, Event, Published
from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.broadcast.state import BroadcastState
from taut.strategies.info import Completeness, StrategyInfo


class Independent(Broadcast):
    """``--strategy independent``: publishing is forgetting."""

    name = "independent"
    info = StrategyInfo(Completeness.NOTHING, one_model=False)
    complete = False
    returns = "mix"

    def on(self, state: BroadcastState, event: Event, now: float) -> list[Action]:
        return super().on(state, Published(None) if isinstance(event, Published) else event, now)
