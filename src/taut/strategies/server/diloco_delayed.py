"""Delayed Nesterov: DiLoCo without waiting. Every worker pushes its change when it has made its H steps.

A push is g = theta_then - x_i, with theta_then the weights from which worker i started its H steps. Momentum from one
late push after the other would run away, so it moves once for every N pushes, N being the number of workers:

    at each push       A <- A + g        theta <- theta - eta g / N
    at every N-th      m <- mu m + A / N        theta <- theta - eta mu m        A <- 0        then x_i <- theta

Over N pushes theta has made one Nesterov step along their mean, as in the lockstep form. theta, m and A are in a sharded
center (``center.py``), each shard counting its own pushes; when the members change, shards that move keep theta, and
their m and A start anew. The inner optimizer's moments are not exchanged. Two more vectors per worker, and a share of m
and A.
Paper: Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling" (algorithm 3, momentum activation c = 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from taut.strategies.api import Local, MembersChanged, Membership, MethodAction, MethodEvent, Tell, Vector
from taut.strategies.server.center import SHARDS, Center
from taut.strategies.server.center_method import CenterMethod, CenterState


@dataclass
class OuterMomentum:
    """A shard's state beside theta: m, A, and the number of pushes in A."""

    momentum: Vector
    pushed: Vector
    count: int = 0


@dataclass
class NesterovRule:
    """The exchange rule. ``base``: the weights from which this worker started its steps; ``workers``: N."""

    local: Local
    rate: float
    decay: float
    base: Vector
    workers: int
    memories: dict[int, OuterMomentum] = field(default_factory=dict)

    def serve(self, shard: int, center: Vector, values: Vector, number: float) -> Vector:
        """Add one push to theta, and return theta."""
        outer = self.memories.get(shard)
        if outer is None:
            outer = self.memories[shard] = OuterMomentum(np.zeros_like(center), np.zeros_like(center))
        outer.pushed += values
        outer.count += 1
        center -= np.float32(self.rate / self.workers) * values
        if outer.count >= self.workers:
            outer.momentum *= np.float32(self.decay)
            outer.momentum += outer.pushed / np.float32(outer.count)
            center -= np.float32(self.rate * self.decay) * outer.momentum
            outer.pushed[:], outer.count = 0.0, 0
        return center

    def take(self, part: slice, answer: Vector, number: float) -> Vector:
        self.base[part] = answer
        self.local.x[part] = answer
        return answer


@dataclass
class DelayedState(CenterState):
    server: NesterovRule = None  # type: ignore[assignment]  # set by start


@dataclass(frozen=True)
class Delayed(CenterMethod):
    """``--strategy diloco:delayed=true``, which uses this. ``every``: H; ``rate``: eta; ``decay``: mu.

    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(Delayed(every=2, rate=1.0, decay=0.0), [np.zeros(3, np.float32) for _ in range(2)])
    >>> world.run(4); world.finish()
    >>> world.spread()
    0.0
    """

    name = "diloco"
    paper = "Liu et al. 2024"

    every: int = 100
    rate: float = 0.7
    decay: float = 0.9

    def start(self, membership: Membership, local: Local) -> DelayedState:
        server = NesterovRule(local, self.rate, self.decay, local.x.copy(), len(membership.members))
        return DelayedState(local, Center(local, membership, server, local.x.copy(), SHARDS), server=server)

    def on(self, state: DelayedState, event: MethodEvent, now: float) -> list[MethodAction]:
        actions = super().on(state, event, now)
        if isinstance(event, MembersChanged):
            held = set(state.center.held())
            state.server.workers = len(event.membership.members)
            state.server.memories = {shard: one for shard, one in state.server.memories.items() if shard in held}
        return actions

    def exchange(self, state: DelayedState) -> list[Tell]:
        return state.center.ask(state.server.base - state.local.x)
