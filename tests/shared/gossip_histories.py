"""Random histories for methods between neighbours: steps, deliveries, deaths, joins and rounds that are held up, in any
order."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from taut.core.events import Ended
from taut.strategies.api import Draining, HeldUp, MembersChanged, Method, MethodEvent
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld


def starts(workers: int, size: int = 4, seed: int = 0) -> list[np.ndarray]:
    random_numbers = np.random.default_rng(seed)
    return [random_numbers.normal(size=size).astype(np.float32) for _ in range(workers)]


def wander(actor: Actor) -> int:
    """A step that differs from worker to worker and from step to step."""
    actor.x += np.float32(0.01) * np.float32((actor.rank + 3 * actor.steps) % 7 - 3)
    return 1


class LateNews(MethodWorld):
    """Workers hear of deaths and joins at different times, as they do of a real supervisor; the latest news counts."""

    news: dict[int, MembersChanged]

    def tell(self, rank: int, event: MethodEvent) -> None:
        if isinstance(event, MembersChanged):
            self.news = {**getattr(self, "news", {}), rank: event}
        else:
            super().tell(rank, event)

    def bring_news(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            event = self.news.pop(rank, None) if hasattr(self, "news") else None
            if event is not None and rank in self.actors:
                super().tell(rank, event)


def live_through(method: Method, topology: str, seed: int, *, workers: int = 5, lossy: bool = False) -> MethodWorld:
    """Some hundred random events, then a few steps of everybody, then the end. Fails if anybody waits for ever."""
    dice = random.Random(seed)
    world = LateNews(method, starts(workers, seed=seed), topology=topology, seed=seed, step=wander, lossy=lossy)
    for _ in range(250):
        happen(world, dice)
    go_on(world, 3)
    for rank in sorted(world.actors):
        if dice.random() < 0.5:  # the news of the end comes to some before others, and before more deaths and joins
            end(world, rank)
            world.tell(rank, Draining())
    for _ in range(30):
        happen(world, dice, ending=True)
    world.bring_news(sorted(world.actors))
    world.finish()
    assert all(np.isfinite(x).all() for x in world.vectors())
    return world


def go_on(world: MethodWorld, steps: int) -> None:
    """Everybody trains on, until each has made so many steps more; nobody stops for having made its own."""
    goal = {rank: actor.steps + steps for rank, actor in world.actors.items() if not actor.ended}
    for _ in range(20_000):
        if isinstance(world, LateNews):
            world.bring_news([rank for rank in sorted(world.actors) if world.random.random() < 0.1])
        behind = [rank for rank, target in goal.items() if world.actors[rank].steps < target]
        if not behind:
            return
        turning = [r for r, a in world.actors.items() if a.proceed and (not a.ended or world.method.lockstep)]
        if turning and world.random.random() < 0.5:
            rank = world.random.choice(turning)
            world.catch_up(rank)
            world.take_step(rank)
        elif not world.deliver():
            news = bool(getattr(world, "news", {}))
            assert turning or world.lossy or news, f"workers {behind} wait for ever"
            if world.lossy:
                world.tick()
    raise AssertionError(f"workers {behind} do not go on")


def happen(world: MethodWorld, dice: random.Random, ending: bool = False, deaths: bool = True) -> None:
    if isinstance(world, LateNews) and dice.random() < 0.2:
        world.bring_news([dice.choice(sorted(world.actors))])
    chance = dice.random() * (1.0 if deaths else 0.9)
    rank = dice.choice(sorted(world.actors))
    if chance < 0.45:
        actor = world.actors[rank]
        draining = getattr(actor.method_state, "draining", False)
        if not draining and (not actor.ended or world.method.lockstep):
            world.catch_up(rank)
            world.take_step(rank)
    elif chance < 0.9:
        world.deliver()
    elif chance < 0.925 and world.lossy:
        world.tick()
    elif chance < 0.95:
        if world.method.drifts and not (world.actors[rank].proceed or world.actors[rank].finished):
            world.tell(rank, HeldUp())
    elif chance < 0.96 and len(world.actors) > 1:
        world.kill(rank)
    elif chance < 0.97 and len(world.actors) < 8:
        world.join()
    elif chance < 0.975 and not ending and sum(not actor.ended for actor in world.actors.values()) > 1:
        end(world, rank)


def end(world: MethodWorld, rank: int) -> None:
    if not world.actors[rank].ended:
        world.actors[rank].ended = True
        world.catch_up(rank)
        world.tell(rank, Ended())
