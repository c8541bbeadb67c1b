"""GossipGraD: one partner per step, 1, 2, 4 ... positions on in an order that is shuffled every log p steps.

    in round r:  k = r mod log2 p;   x  <-  (x + x of the worker 2^k positions before) / 2

One message per worker and step, however many workers there are: O(1) traffic, where all-reduce takes O(log p). After
log p rounds every x has reached every worker indirectly; then all workers shuffle the order alike, so that over time
every two exchange directly. The mean is conserved: every x goes to one other worker, at weight 1/2.

The paper also passes samples round a ring, so that workers see each other's data; here leases assign the samples anew in
every pass, with the same effect. Weights are exchanged, the optimizer's moments are not.

**With a compressor** partners keep copies of each other's x, and half the difference of two copies is what x moves by
(``neighbour_copies.py``). The order is not shuffled then: each worker has the same log2 p partners in all rounds, whose
copies stay fresh.
Paper: Daily et al. 2018, "GossipGraD: scalable deep learning using gossip communication based asynchronous gradient
descent".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from taut.core.splitmix import hash_bits
from taut.specs import check_whole
from taut.strategies.api import (
    ANY_COMPRESSOR,
    Completeness,
    Heard,
    Local,
    Membership,
    MethodAction,
    Stepped,
    StrategyInfo,
)
from taut.strategies.gossip.dpsgd import average
from taut.strategies.gossip.neighbour_copies import NeighbourCopies, copies_for
from taut.strategies.gossip.neighbour_rounds import NeighbourRounds, NeighbourState, tell_all


@dataclass
class GossipGraDState(NeighbourState):
    copies: NeighbourCopies | None = None


@dataclass(frozen=True)
class GossipGraD(NeighbourRounds[GossipGraDState]):
    """``--strategy gossipgrad``. It chooses partners among all workers: the topology stays ``complete``. ``seed``: of the
    shuffled order.

    >>> partners((0, 1, 2, 3), round=0, rank=2, seed=0), partners((0, 1, 2, 3), round=1, rank=2, seed=0)
    ((3, 1), (0, 0))
    """

    name = "gossipgrad"
    info = StrategyInfo(Completeness.NEIGHBOURS, coded_kinds=("x",))
    codecs = ("dense", ANY_COMPRESSOR)
    paper = "Daily et al. 2018"
    topologies = ("complete",)
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "seed", 0)

    def start(self, membership: Membership, local: Local) -> GossipGraDState:
        return GossipGraDState(local, membership, copies=copies_for(membership, local, alike=False))

    def outward(self, state: GossipGraDState) -> list[int]:
        return self._partner(state, 0)

    def inward(self, state: GossipGraDState) -> list[int]:
        return self._partner(state, 1)

    def _partner(self, state: GossipGraDState, side: int) -> list[int]:
        members, rank = state.membership.members, state.membership.rank
        if len(members) < 2:
            return []
        round = state.round if state.copies is None else state.round % hops(len(members))
        return [partners(members, round, rank, self.seed)[side]]

    def send(self, state: GossipGraDState) -> list[MethodAction]:
        if state.copies is not None:
            return state.copies.tell(state, self.receivers(state), [state.local.x])
        return tell_all(state, self.receivers(state), state.local.x.tobytes())

    def check(self, state: GossipGraDState, heard: Heard) -> None:
        if state.copies is not None:
            state.copies.check(heard, state.local)
        else:
            super().check(state, heard)

    def merge(self, state: GossipGraDState, given: Stepped, heard: Sequence[Heard]) -> None:
        row = dict.fromkeys([one.sender for one in heard], 0.5)
        if state.copies is not None:
            state.copies.mix([state.local.x], row, heard, state.copies.gamma)
        else:
            average(state.local.x, row, {one.sender: np.frombuffer(one.payload, np.float32) for one in heard})

    def restart(self, state: GossipGraDState) -> None:
        if state.copies is not None:
            state.copies.restart()


def hops(members: int) -> int:
    """Return the rounds after which all have heard of all."""
    return (members - 1).bit_length()


def partners(members: tuple[int, ...], round: int, rank: int, seed: int) -> tuple[int, int]:
    """Return the worker that ``rank`` sends to in this round, and the one that it hears."""
    rounds = hops(len(members))
    order = shuffled(members, round // rounds, seed)
    here, hop = order.index(rank), 1 << (round % rounds)
    return order[(here + hop) % len(order)], order[(here - hop) % len(order)]


@lru_cache(maxsize=16)
def shuffled(members: tuple[int, ...], shuffle: int, seed: int) -> tuple[int, ...]:
    """Return the members in shuffled order; the first order is by rank.

    >>> shuffled((0, 1, 2, 3), 0, 0), sorted(shuffled((0, 1, 2, 3), 5, 0))
    ((0, 1, 2, 3), [0, 1, 2, 3])
    """
    return tuple(sorted(members, key=lambda rank: (hash_bits(seed, shuffle, rank) if shuffle else 0, rank)))
