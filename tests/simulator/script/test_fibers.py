"""Fibers share the process's random generators, and none notices the others' draws."""

from __future__ import annotations

import io
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from taut.simulator.script.fibers import EventLoop, Fiber

DRAWS: dict[str, Callable[[], float]] = {
    "python": random.random,
    "numpy": np.random.random_sample,
    "numpy, in pairs": np.random.standard_normal,  # the second of a pair is kept in store, and moves no word
    "torch": lambda: float(torch.rand(())),
    "nothing": lambda: 0.0,
}


def drawn(draws: list[Callable[[], float]], times: int = 5) -> list[list[float]]:
    """Return what each of these fibers draws, one draw after the other in turn."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(7)
    loop, found = EventLoop(), [[] for _ in draws]  # type: ignore[var-annotated]

    def script(number: int) -> None:
        for _ in range(times):
            found[number].append(draws[number]())
            fiber = fibers[number]
            fiber.sleep(1)

    fibers = [Fiber(loop, lambda number=number: script(number), "", io.StringIO()) for number in range(len(draws))]
    for fiber in fibers:
        loop.at(0, fiber.resume)
    loop.run(lambda: False)
    return found


@pytest.mark.parametrize("kind", DRAWS)
def test_each_fiber_draws_as_if_it_were_alone(kind: str) -> None:
    draw = DRAWS[kind]
    [alone] = drawn([draw])
    for other in DRAWS.values():
        assert drawn([draw, other, draw])[0] == alone
        assert drawn([other, draw, other])[1] == alone


def test_no_draw_of_a_fiber_is_seen_outside() -> None:
    drawn([])
    before = random.random(), np.random.standard_normal(), torch.rand(())
    for draw in DRAWS.values():
        drawn([draw, draw])
        assert (random.random(), np.random.standard_normal(), torch.rand(())) == before
