"""Conformance of methods that exchange vectors: whatever the network and the workers do, nobody waits for ever, everybody
comes to an end, and replicas that are promised to agree do.

``check_method`` plays one seeded history of steps, deliveries, deaths and joins, over reliable links or over channels on
a network that loses, repeats and reorders. Every method of the registry must pass it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from taut.strategies.api import Method
from taut.strategies.delivery.channels import ChannelsState
from taut.testing.worlds.codec_actor import CodecActor, with_codec, with_coder
from taut.testing.worlds.method_actor import Actor, Vector
from taut.testing.worlds.method_world import MethodWorld

SIZE = 24


def check_method(
    method: Method,
    seed: int,
    *,
    topology: str = "complete",
    workers: int = 4,
    churn: bool = True,
    lossy: bool = False,
    codec: str = "",
) -> MethodWorld:
    """Let each worker descend towards a target of its own; some die, some join, some run out of data early. Raise
    ``AssertionError`` if a worker waits for ever, or the replicas do not end as the method promises.

    >>> from taut.strategies.gossip.dpsgd import DPSGD
    >>> world = check_method(DPSGD(), seed=1, topology="ring")
    >>> all(actor.finished for actor in world.actors.values())
    True
    """
    choose = random.Random(seed)
    noise = np.random.default_rng(seed)
    targets = noise.normal(size=(workers + 8, SIZE)).astype(np.float32)

    def step(actor: Actor) -> int:
        gradient = actor.x - targets[actor.rank % len(targets)]
        if method.shapes_gradient and actor.method_state is not None:
            method.shape_gradient(actor.method_state, gradient, 0.1)
        if method.vector == "gradients":
            actor.x[:] = gradient
        else:
            actor.x -= np.float32(0.1) * gradient
        return choose.randint(1, 64)

    start = noise.normal(size=SIZE).astype(np.float32)
    speeds = [choose.choice([0.25, 1.0, 1.0]) for _ in range(workers + 8)]
    world = MethodWorld(
        method,
        [start] * workers,
        topology=topology,
        seed=seed,
        step=step,
        lossy=lossy,
        loss=0.2,
        speeds=speeds,
        actor=_actor(method, codec, workers),
    )
    for _ in range(choose.randint(2, 5)):
        world.run(choose.randint(1, 12), limit=60_000, freely=True)
        if not churn:
            continue
        kind = choose.random()
        if kind < 0.35 and len(world.actors) > 1:
            world.kill(choose.choice(sorted(world.actors)))
        elif kind < 0.6 and method.admits_late:
            world.join()
    world.finish()
    actors = [world.actors[rank] for rank in sorted(world.actors)]
    vectors = [actor.shared if isinstance(actor, CodecActor) else actor.x for actor in actors]
    assert all(np.isfinite(x).all() for x in vectors), "a weight is not finite"
    if method.consensus and method.vector == "weights":
        assert all(np.array_equal(x, vectors[0]) for x in vectors), "replicas differ, and must agree under this method"
    return world


def _actor(method: Method, codec: str, workers: int) -> Callable[[int, Vector, ChannelsState], Actor]:
    codec = codec or method.codecs[0]
    if method.streams:
        return with_codec(codec, workers)
    return Actor if codec == "dense" else with_coder(codec, workers)
