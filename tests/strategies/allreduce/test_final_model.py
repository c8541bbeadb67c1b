"""The final model is handed to late joiners only: sent in mid-run it is refused, and changes nobody's weights."""

from __future__ import annotations

import numpy as np
import pytest

from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.allreduce.final_model import KIND
from taut.strategies.registry import parse
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

METHODS = (
    "averaging:every=2",
    "fedavg:steps=2",
    "diloco:every=2",
    "dynamic:every=2,threshold=0.001",
    "admm:every=2",
    "easgd:every=2",
)
ROBUST = ("averaging:every=2,robust=median", "diloco:every=2,robust=median", "fedavg:steps=2,robust=median")
FORGED = np.full(24, 1000.0, np.float32)


def descend(actor: Actor) -> int:
    actor.x -= np.float32(0.1) * (actor.x - np.float32(actor.rank))
    return 8


def world_of(name: str, seed: int) -> MethodWorld:
    return MethodWorld(parse(name).method(), [np.ones(24, np.float32)] * 4, seed=seed, step=descend)


def hand_forged(world: MethodWorld, victims: range) -> int:
    """Worker 3 sends a forged final model to each victim; how many refuse it."""
    refused = 0
    for rank in victims:
        world.catch_up(rank)
        try:
            world.tell(rank, heard(3))
        except MalformedMessage:
            refused += 1
    return refused


def heard(sender: int):
    from taut.strategies.api import Heard

    item = Heard(sender, Note(KIND), FORGED.tobytes())
    return Heard(item.sender, item.note, item.payload)


def assert_honest(world: MethodWorld) -> None:
    vectors = world.vectors()
    assert all(float(np.abs(x).max()) < 10.0 for x in vectors), "the forged model was taken over"
    assert all(np.array_equal(x, vectors[0]) for x in vectors)


@pytest.mark.parametrize("name", METHODS + ROBUST)
@pytest.mark.parametrize("seed", range(3))
def test_a_final_model_in_mid_run_is_refused(name: str, seed: int) -> None:
    world = world_of(name, seed)
    world.run(7, freely=True)
    assert hand_forged(world, range(3)) == 3
    world.run(5, freely=True)
    world.finish()
    assert_honest(world)


@pytest.mark.parametrize("name", METHODS)
def test_a_final_model_before_the_first_round_is_not_taken_over(name: str) -> None:
    world = world_of(name, 0)
    hand_forged(world, range(3))
    world.run(7, freely=True)
    world.finish()
    assert_honest(world)


@pytest.mark.parametrize("name", METHODS)
def test_a_final_model_during_the_drain_is_not_taken_over(name: str) -> None:
    from taut.core.events import Ended
    from taut.strategies.api import Draining

    world = world_of(name, 1)
    world.run(6, freely=True)
    for rank in sorted(world.actors):
        world.actors[rank].ended = True
        world.catch_up(rank)
        world.tell(rank, Ended())
    for rank in sorted(world.actors):
        world.tell(rank, Draining())
    hand_forged(world, range(3))
    world.finish()
    assert_honest(world)
