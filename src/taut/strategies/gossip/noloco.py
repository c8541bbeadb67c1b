"""NoLoCo: local training for H steps, then a step of momentum towards the mean of a random pair. No all-reduce.

    d_i    <- alpha d_i + eta ((x_i + x_j) / 2 - phi_i)          j: the partner of this round
    phi_i  <- phi_i + d_i;    x_i <- phi_i

phi_i are the worker's weights after its last round, d_i its momentum; both are its own. With D = x - phi, the pull is
eta (D_i + D_j) / 2 + eta (phi_j - phi_i) / 2: Nesterov's step of ``diloco`` on the pair's mean change, and a term that
pulls the pair together. The paper has a coefficient for each (beta and gamma); the authors run both at 0.7, and so one
vector is sent instead of two. The pulls of a pair cancel, so the mean over all workers moves as if by an all-reduce.

Pairs are drawn anew in each round, from the seed, alike at all workers; with an odd number one is left over, and is its
own pair. A pair that has not trained averages, and keeps its momentum for when it does. Replicas end apart: the final
model is their average. Exchanged: x, to one worker in H steps.
Paper: Kolehmainen et al. 2025, "NoLoCo: no-all-reduce low communication training method for large models".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from taut.core.splitmix import hash_bits
from taut.errors import MalformedMessage, Misuse
from taut.specs import check_from_zero, check_share, check_whole
from taut.strategies import api as m
from taut.strategies.gossip.neighbour_rounds import NeighbourRounds, NeighbourState, tell_all


@dataclass
class NoLoCoState(NeighbourState):
    """A worker's state. ``phi``: its weights after its last round; ``momentum``: d."""

    phi: m.Vector = None  # type: ignore[assignment]  # set by start
    momentum: m.Vector = None  # type: ignore[assignment]


@dataclass(frozen=True)
class NoLoCo(NeighbourRounds[NoLoCoState]):
    """``--strategy noloco:every=50``. It chooses partners among all workers: the topology stays ``complete``.

    ``every``: H. ``outer_rate``: eta. ``outer_momentum``: alpha; eta must be above it, and below sqrt(2 + alpha^2): else
    replicas drift apart (the paper's theorem, for pairs). ``seed``: of the pairs.

    >>> pairs((0, 1, 2, 3, 4), round=0, seed=0) != pairs((0, 1, 2, 3, 4), round=1, seed=0)
    True
    """

    name = "noloco"
    info = m.StrategyInfo(m.Completeness.NEIGHBOURS, (m.Variant("every=50"),), short="every=5")
    paper = "Kolehmainen et al. 2025"
    topologies = ("complete",)
    keeps_own = ("momentum",)

    every: int = 50
    outer_rate: float = 0.7
    outer_momentum: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "every", 1, "the paper takes 50")
        check_share(self, "outer_rate", high=10.0)
        check_from_zero(self, "outer_momentum")
        check_whole(self, "seed", 0)
        if not self.outer_momentum < self.outer_rate < math.sqrt(2.0 + self.outer_momentum**2):
            limit = math.sqrt(2.0 + self.outer_momentum**2)
            raise Misuse(
                f"noloco: outer_rate={self.outer_rate:g} with outer_momentum={self.outer_momentum:g}",
                f"a rate above the momentum and below {limit:.3g}, or replicas drift apart",
                "the paper takes 0.7 and 0.5",
            )

    def start(self, membership: m.Membership, local: m.Local) -> NoLoCoState:
        return NoLoCoState(local, membership, phi=local.x.copy(), momentum=np.zeros_like(local.x))

    def outward(self, state: NoLoCoState) -> list[int]:
        partner = pairs(state.membership.members, state.round, self.seed).get(state.membership.rank)
        return [] if partner is None else [partner]

    def inward(self, state: NoLoCoState) -> list[int]:
        return self.outward(state)

    def send(self, state: NoLoCoState) -> list[m.MethodAction]:
        return tell_all(state, self.receivers(state), state.local.x.tobytes(), [float(state.given.samples)])

    def check(self, state: NoLoCoState, heard: m.Heard) -> None:
        super().check(state, heard)
        if len(heard.note.numbers) != 1 or not 0.0 <= heard.note.numbers[0] < math.inf:
            raise MalformedMessage(f"a message with the numbers {heard.note.numbers}; one number of samples was expected")

    def merge(self, state: NoLoCoState, given: m.Stepped, heard: Sequence[m.Heard]) -> None:
        x, phi, momentum = state.local.x, state.phi, state.momentum
        for one in heard:
            x += np.frombuffer(one.payload, np.float32)
        x /= np.float32(1 + len(heard))
        if given.samples or any(one.note.numbers[0] for one in heard):
            x -= phi
            momentum *= np.float32(self.outer_momentum)
            momentum += np.float32(self.outer_rate) * x
            phi += momentum
            x[:] = phi
        else:
            phi[:] = x


@lru_cache(maxsize=16)
def pairs(members: tuple[int, ...], round: int, seed: int) -> dict[int, int]:
    """Return each member's partner in this round; of an odd number one has none.

    >>> found = pairs((0, 1, 2, 5, 7), 3, 0)
    >>> len(found), all(found[found[rank]] == rank != found[rank] for rank in found)
    (4, True)
    """
    drawn = sorted(members, key=lambda rank: (hash_bits(seed, round, rank), rank))
    found = dict(zip(drawn[::2], drawn[1::2], strict=False))
    return found | {theirs: mine for mine, theirs in found.items()}
