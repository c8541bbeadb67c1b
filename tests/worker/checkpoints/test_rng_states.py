"""The random states of a process: what is drawn after they were put back is what would have been drawn."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from taut.worker.checkpoints.rng_states import put_back_random_states, random_states
from taut.worker.checkpoints.state_tree import fold, unfold


def as_a_checkpoint_has_them(states: dict[str, Any]) -> dict[str, Any]:
    tensors: dict[str, torch.Tensor] = {}
    folded = fold(states, "random", tensors)
    found: dict[str, Any] = unfold(folded, {name: tensor.clone() for name, tensor in tensors.items()}.__getitem__)
    return found


def as_older_ones_have_them(states: dict[str, Any]) -> dict[str, Any]:
    """Lists of numbers without a sign."""
    version, words, gauss = states["python"]
    legacy = states["numpy"]
    key = {**legacy["state"], "key": legacy["state"]["key"].view(np.uint32).tolist()}
    return {
        **states,
        "python": (version, tuple(words.view(np.uint32).tolist()), gauss),
        "numpy": {**legacy, "state": key},
    }


@pytest.mark.parametrize("kept", [as_a_checkpoint_has_them, as_older_ones_have_them])
def test_what_is_drawn_next_is_what_would_have_been_drawn(kept: Any) -> None:
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    random.gauss(0.0, 1.0)  # the second of a pair waits
    np.random.randn()

    def draw() -> list[float]:
        numbers = [random.gauss(0.0, 1.0), *(random.random() for _ in range(700)), *np.random.randn(700).tolist()]
        return [*numbers, *torch.rand(5).tolist()]

    before = random_states()
    drawn = draw()
    draw()  # and what was kept is no view of what changes
    put_back_random_states(kept(before))
    assert draw() == drawn
