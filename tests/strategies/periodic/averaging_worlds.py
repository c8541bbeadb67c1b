"""Worlds for the averaging family: random histories, and a small least-squares problem that can be solved by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np

from taut.core.events import Ended
from taut.strategies.api import Draining, Heard, HeldUp, MembersChanged, Method, MethodEvent
from taut.testing.worlds.method_actor import Actor, Vector
from taut.testing.worlds.method_world import MethodWorld


class Watched(MethodWorld):
    """A world that sees to it that nobody touches the x of a worker that trains."""

    def tell(self, rank: int, event: MethodEvent) -> None:
        actor = self.actors[rank]
        training = actor.proceed and not actor.ended and isinstance(event, Heard | MembersChanged)
        before = actor.x.copy() if training else None
        super().tell(rank, event)
        assert before is None or np.array_equal(before, actor.x), f"{event} changed x while worker {rank} trained"


def wander(actor: Actor) -> int:
    """A step that differs from worker to worker and from step to step; so does its number of samples."""
    actor.x += np.float32(0.01) * np.float32((actor.rank + 3 * actor.steps) % 7 - 2)
    return 1 + (actor.rank + actor.steps) % 3


def starts(workers: int, size: int = 5) -> list[Vector]:
    return [np.arange(size, dtype=np.float32) for _ in range(workers)]


def live_through(method: Method, seed: int, *, workers: int = 4, lossy: bool = False, size: int = 5) -> MethodWorld:
    """Steps, deliveries, deaths, joins, rounds held up and ends of data in any order; then all that have data must get
    on; then the drain, with more deaths and joins; then a late joiner. Fails if anybody is left waiting."""
    dice = random.Random(seed)
    world = Watched(method, starts(workers, size), seed=seed, step=wander, lossy=lossy, hold_ups=0.03)
    for _ in range(200):
        happen(world, dice)
    go_on(world, 3)
    drained: set[int] = set()
    unrest = dice.choice((0.01, 0.03, 0.08))
    for _ in range(100):
        rank = dice.choice(sorted(world.actors))
        if rank not in drained and world.actors[rank].proceed and dice.random() < 0.2:
            drained.add(rank)
            end(world, rank)
            world.tell(rank, Draining())
        happen(world, dice, drained, unrest)
    world.finish()
    if dice.random() < 0.5:
        world.join()
        world.finish()
    return world


def go_on(world: MethodWorld, steps: int) -> None:
    """Until each worker with data has made so many steps more; nobody stops for having made its own."""
    goal = {rank: actor.steps + steps for rank, actor in world.actors.items() if not actor.ended}
    for _ in range(8_000):
        behind = [rank for rank, target in goal.items() if world.actors[rank].steps < target]
        if not behind:
            return
        assert world._happen([r for r, a in sorted(world.actors.items()) if not a.ended or world.method.lockstep])
    raise AssertionError(f"workers {behind} do not get on")


def end(world: MethodWorld, rank: int) -> None:
    """The worker is out of data."""
    if not world.actors[rank].ended:
        world.actors[rank].ended = True
        world.catch_up(rank)
        world.tell(rank, Ended())


def happen(
    world: MethodWorld, dice: random.Random, drained: frozenset[int] | set[int] = frozenset(), change: float = 0.013
) -> None:
    """One event; with chance ``change`` each a death and a join."""
    chance = dice.random()
    rank = dice.choice(sorted(world.actors))
    actor = world.actors[rank]
    if chance < change:
        if len(world.actors) > 1:
            world.kill(rank)
    elif chance < 2 * change:
        if len(world.actors) < 7:
            world.join()
    elif chance < 0.18:
        if actor.proceed and sum(not one.ended for one in world.actors.values()) > 1 and dice.random() < 0.06:
            end(world, rank)
    elif chance < 0.2:
        if world.lossy:
            world.tick()
        elif world.method.drifts and not (actor.proceed or actor.finished):
            world.tell(rank, HeldUp())
    elif chance < 0.6:
        world.deliver()
    elif not actor.ended or (world.method.turns_until_finished if rank in drained else world.method.lockstep):
        world.catch_up(rank)
        world.take_step(rank)


def assert_equal_bits(world: MethodWorld) -> None:
    first, *others = world.vectors()
    for other in others:
        assert first.tobytes() == other.tobytes()


class LeastSquares:
    """Worker i has A_i x ~ b_i. With few ``rows`` it has too little data to find the solution alone, but all that it has
    is right; with ``noise`` everybody's own solution is another one."""

    def __init__(self, workers: int, rows: int = 4, noise: float = 0.0, size: int = 6, seed: int = 0) -> None:
        numbers = np.random.default_rng(seed)
        truth = numbers.normal(size=size)
        self.a = [numbers.normal(size=(rows, size)) / math.sqrt(rows) for _ in range(workers)]
        self.b = [a @ truth + noise * (numbers.normal(size=rows) + i) for i, a in enumerate(self.a)]
        self.solution, *_ = np.linalg.lstsq(np.concatenate(self.a), np.concatenate(self.b), rcond=None)
        self.size, self.rows = size, rows

    def gradient(self, rank: int, x: Vector) -> Vector:
        a, b = self.a[rank % len(self.a)], self.b[rank % len(self.b)]
        gradient: Vector = (a.T @ (a @ x - b)).astype(np.float32)
        return gradient

    def step(self, method: Method, rate: float = 0.05, samples: int = 1) -> Callable[[Actor], int]:
        """Gradient descent, shaped by the method where it wants to."""

        def step(actor: Actor) -> int:
            gradient = self.gradient(actor.rank, actor.x)
            if method.shapes_gradient:
                method.shape_gradient(actor.method_state, gradient, rate)
            actor.x -= np.float32(rate) * gradient
            return samples

        return step

    def error(self, x: Vector) -> float:
        """Relative to the solution."""
        return float(np.linalg.norm(x - self.solution) / np.linalg.norm(self.solution))
