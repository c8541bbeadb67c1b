"""Whatever happens, everybody finishes, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from averaging_worlds import Watched, assert_equal_bits, end, live_through, starts, wander
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.strategies.registry import parse

METHODS = [
    "averaging:every=3",
    "averaging:every=1,weights=equal,schedule=tree",
    "averaging:every=3,robust=median",
    "averaging:every=1,robust=trimmed",
    "averaging:every=2,robust=clip",
    "fedavg:fraction=0.5,steps=3",
    "fedavg:fraction=0.3,samples=5",
    "fedavg:fraction=0.6,steps=2,robust=median",
    "easgd:every=3,momentum=0.5",
    "easgd:every=1,alpha=0.5,shards=2",
    "diloco:every=3",
    "diloco:every=6,fragments=3",
    "diloco:every=6,fragments=2,overlap=2",
    "diloco:every=2,delayed=true",
    "diloco:every=3,eager=true",
    "diloco:every=3,quorum=2",
    "diloco:every=6,fragments=3,overlap=1,quorum=2",
    "sparseloco:every=3",
    "sparseloco:every=2,outer_rate=0.5",
    "diloco:every=3,robust=trimmed",
    "dynamic:threshold=0.001,every=2",
    "dynamic:threshold=0,every=3",
    "dynamic:threshold=0.05,every=1",
    "admm:rho=0.1,every=3",
]


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("given_method", METHODS)
def test_everybody_finishes_with_the_same_bits(given_method: str, lossy: bool) -> None:
    @settings(max_examples=some(8 if lossy else 20))
    @given(st.integers(0, 2**31), st.integers(1, 5), st.sampled_from([1, 5, 40]))
    def check(seed: int, workers: int, size: int) -> None:
        assert_equal_bits(live_through(parse(given_method).method(), seed, workers=workers, lossy=lossy, size=size))

    check()


@pytest.mark.parametrize("given_method", METHODS)
def test_what_a_newcomer_has_from_a_donor_that_died_does_not_keep_it_apart(given_method: str) -> None:
    world = Watched(parse(given_method).method(), starts(2), step=wander)
    end(world, 1)
    world.take_step(0)
    newcomer = world.join()
    assert not np.array_equal(world.actors[newcomer].x, world.actors[1].x)
    world.kill(0)
    world.finish()
    assert_equal_bits(world)


@pytest.mark.parametrize("given_method", METHODS)
def test_the_model_reaches_latecomers_even_if_only_a_latecomer_is_left_that_has_it(given_method: str) -> None:
    world = Watched(parse(given_method).method(), starts(2), step=wander)
    world.run(7, ends=True)
    world.finish()
    model = world.actors[0].x.tobytes()
    first = world.join()
    world.finish()
    world.join()
    world.join()
    world.kill(0)
    world.kill(1)
    world.finish()
    assert len(world.actors) == 3
    assert world.actors[first].x.tobytes() == model
    assert_equal_bits(world)
