"""One worker's state in the broadcast: its links and logs, and the pruning of updates that no worker needs any more."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from taut.core.events import Include
from taut.strategies.broadcast.hash_chains import Chain
from taut.strategies.broadcast.log import Log
from taut.strategies.delivery.retransmission import PeerLink


@dataclass(slots=True)
class BroadcastState:
    """One worker's state. ``step`` counts its iterations, ``staleness`` is smoothed, in iterations; ``measured``: what it
    was made of last, for whoever counts it."""

    rank: int
    synced: bool
    links: dict[int, PeerLink] = field(default_factory=dict)
    logs: dict[int, Log] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    taken: dict[int, int] = field(default_factory=dict)
    final: int = -1
    step: int = 0
    step_of: dict[int, int] = field(default_factory=dict)  # own update -> the iteration that made it
    clock: int = 0  # iterations, as told by `Ticked`
    staleness: float = 1.0
    measured: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    told_drained: bool = False
    chains: dict[int, Chain] = field(default_factory=dict)  # per origin; empty unless ``Broadcast.compares``
    disputed: dict[int, set[int]] = field(default_factory=dict)  # origin -> neighbours that hold other updates of it
    laggards: dict[int, int] = field(default_factory=dict)  # per origin, a neighbour that lacked some of its updates

    def log_of(self, origin: int) -> Log:
        log = self.logs.get(origin)
        if log is None:
            log = self.logs[origin] = Log()
        return log

    def chain_of(self, origin: int) -> Chain:
        chain = self.chains.get(origin)
        if chain is None:
            chain = self.chains[origin] = Chain()
        return chain

    def have(self) -> dict[int, int]:
        """Return the version vector: per origin, how many of its updates are here."""
        return {origin: log.head for origin, log in self.logs.items()}

    def tail(self, have: dict[int, int]) -> list[Include]:
        """Return the kept updates that are among ``have``, in order per origin; they go with a state to its receiver."""
        return [
            Include(origin, entry.lo, entry.hi, entry.payload)
            for origin, log in self.logs.items()
            for entry in log.entries
            if entry.hi <= have.get(origin, 0)
        ]

    def beyond(self, have: dict[int, int], gone: Iterable[int]) -> list[Include]:
        """Return the kept updates of the origins in ``gone`` that are not among ``have``, in order per origin. Skip
        an origin of which others hold other updates.

        >>> state = BroadcastState(2, True)
        >>> for seq in (1, 2, 3): state.log_of(2).append(seq, seq, b"u")
        >>> [item.lo for item in state.beyond({2: 1}, gone=[2, 7])], state.beyond({2: 1}, gone=[7])
        ([2, 3], [])
        """
        found: list[Include] = []
        for origin in sorted((set(gone) & self.logs.keys()) - self.disputed.keys()):
            log, position = self.logs[origin], have.get(origin, 0)
            if position < log.head and position >= log.floor and log.boundary(position):
                found += [Include(origin, entry.lo, entry.hi, entry.payload) for entry in log.after(position)]
        return found

    def attached(self) -> bool:
        """Return whether every neighbour keeps its log for this worker, so that it may ask for a state."""
        return all(link.heard for link in self.links.values())

    def drained(self) -> bool:
        """Return whether no update is missing and none can come."""
        if self.final < 0 or not self.synced:
            return False
        for rank, link in self.links.items():
            if link.final < 0 or self.log_of(rank).head < link.final or self.taken.get(rank, 0) < link.final:
                return False
        for origin in self.gone:
            here = self.log_of(origin).head
            if self.taken.get(origin, 0) < here:
                return False
            if any(origin not in link.sealed or link.seen.get(origin, 0) > here for link in self.links.values()):
                return False
        return True

    def fastest(self) -> int:
        """Return the largest known clock."""
        return max([self.clock, *(link.clock for link in self.links.values())])

    def delivered(self) -> bool:
        """Return whether all remaining workers have received every update of this one, so that it may go."""
        own = self.log_of(self.rank).head
        return all(not link.pending and link.received >= own for link in self.links.values())


def prune(state: BroadcastState) -> None:
    """Drop our updates once every neighbour has them, and a peer's once every other neighbour has them."""
    for origin, log in state.logs.items():
        if not log.entries:
            continue
        oldest = log.entries[0].hi
        if _lags(state, state.laggards.get(origin, -1), origin, oldest):
            continue  # checked first, since a loop over many neighbours is slow
        for rank in state.links:
            if _lags(state, rank, origin, oldest):
                state.laggards[origin] = rank
                break
        else:
            _prune_log(state, origin, log)
    own_floor = state.log_of(state.rank).floor
    if len(state.step_of) > 4 * (state.log_of(state.rank).head - own_floor) + 1024:
        state.step_of = {seq: step for seq, step in state.step_of.items() if seq >= own_floor}


def _lags(state: BroadcastState, rank: int, origin: int, position: int) -> bool:
    """Return whether this neighbour may still need the updates of ``origin`` up to ``position``."""
    link = state.links.get(rank)
    if link is None or rank == origin:
        return False
    if origin == state.rank:
        return link.pending or link.received < position
    return link.seen.get(origin, 0) < position


def _prune_log(state: BroadcastState, origin: int, log: Log) -> None:
    positions = [
        (-1 if link.pending else link.received) if origin == state.rank else link.seen.get(origin, 0)
        for rank, link in state.links.items()
        if rank != origin
    ]
    log.prune(min(positions, default=log.head))
