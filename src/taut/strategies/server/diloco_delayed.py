"""Delayed Nesterov: DiLoCo without waiting. Every worker pushes its change when it has made its H steps.

A push is g = theta_then - x_i, theta_then being what worker i started its H steps from. Momentum fed with one late push
after the other would run away, so it moves once for every N pushes, N being the number of workers:

    at each push       A <- A + g        theta <- theta - eta g / N
    at every N-th      m <- mu m + A / N        theta <- theta - eta mu m        A <- 0        then x_i <- theta

Over N pushes theta has made one Nesterov step along their mean, as in the lockstep form. theta, m and A live in a sharded
centre (``center.py``), each shard counting its own pushes; when the members change, shards that move keep theta, and
their m and A start anew. The inner optimizer's moments stay at home. Two more vectors per worker, and a share of m and A.
Paper: Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling" (algorithm 3, momentum activation c = 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from taut.strategies.api import Local, MemberPlace, MethodAction, MethodEvent, Placed, Tell
from taut.strategies.server.center import SHARDS, Center
from taut.strategies.server.center_method import CenterMethod, CenterState

if TYPE_CHECKING:
    from taut.strategies.api import Vector


@dataclass
class Memory:
    """What the holder of a shard keeps beside theta: m, A, and how many pushes are in A."""

    momentum: Vector
    pushed: Vector
    count: int = 0


@dataclass
class Server:
    """The exchange. ``base``: what this worker started its steps from; ``workers``: N."""

    local: Local
    rate: float
    decay: float
    base: Vector
    workers: int
    memories: dict[int, Memory] = field(default_factory=dict)

    def serve(self, shard: int, centre: Vector, values: Vector, number: float) -> Vector:
        """One push arrives; the answer is theta."""
        memory = self.memories.get(shard)
        if memory is None:
            memory = self.memories[shard] = Memory(np.zeros_like(centre), np.zeros_like(centre))
        memory.pushed += values
        memory.count += 1
        centre -= np.float32(self.rate / self.workers) * values
        if memory.count >= self.workers:
            memory.momentum *= np.float32(self.decay)
            memory.momentum += memory.pushed / np.float32(memory.count)
            centre -= np.float32(self.rate * self.decay) * memory.momentum
            memory.pushed[:], memory.count = 0.0, 0
        return centre

    def take(self, part: slice, answer: Vector, number: float) -> Vector:
        """x <- theta"""
        self.base[part] = answer
        self.local.x[part] = answer
        return answer


@dataclass
class Pushing(CenterState):
    """A worker's state."""

    server: Server = None  # type: ignore[assignment]  # set by start


@dataclass(frozen=True)
class Delayed(CenterMethod):
    """``--strategy diloco:delayed=true``, which makes one of these. ``every``: H; ``rate``: eta; ``decay``: mu.

    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(Delayed(every=2, rate=1.0, decay=0.0), [np.zeros(3, np.float32) for _ in range(2)])
    >>> world.run(4); world.finish()
    >>> world.spread()
    0.0
    """

    name: ClassVar[str] = "diloco"
    paper: ClassVar[str] = "Liu et al. 2024"

    every: int = 100
    rate: float = 0.7
    decay: float = 0.9

    def start(self, place: MemberPlace, local: Local) -> Pushing:
        server = Server(local, self.rate, self.decay, local.x.copy(), len(place.members))
        return Pushing(local, Center(local, place, server, local.x.copy(), SHARDS), server=server)

    def on(self, state: Pushing, event: MethodEvent, now: float) -> list[MethodAction]:
        actions = super().on(state, event, now)
        if isinstance(event, Placed):
            held = set(state.centre.held())
            state.server.workers = len(event.place.members)
            state.server.memories = {shard: one for shard, one in state.server.memories.items() if shard in held}
        return actions

    def exchange(self, state: Pushing) -> list[Tell]:
        return state.centre.ask(state.server.base - state.local.x)
