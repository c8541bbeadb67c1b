"""A schedule of resolutions: its stages, and images in their sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.data import Resolutions
from taut.errors import Misuse


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 5)), min_size=1, max_size=4), st.integers(1, 40))
def test_images_get_the_size_of_the_stage_and_keep_their_mean_brightness(
    stages: list[tuple[int, int]], side: int
) -> None:
    schedule = Resolutions(stages)
    flat = torch.full((2, 3, side, side), 0.25)
    for stage, (size, epochs) in zip(schedule, stages, strict=True):
        assert (stage.size, stage.epochs, stage.first) == (size, epochs, stage is schedule[0])
        assert stage.resize(flat).shape == (2, 3, size, size)
        assert stage.resize(flat[0]).shape == (3, size, size)
        torch.testing.assert_close(stage.resize(flat), torch.full((2, 3, size, size), 0.25))
    assert schedule.epochs == sum(epochs for _, epochs in stages)


def test_images_of_the_right_size_are_not_copied() -> None:
    images = torch.rand(2, 1, 8, 8)
    assert Resolutions([(8, 1)])[0].resize(images) is images


def test_a_shrunk_image_is_smoothed_and_not_sampled() -> None:
    stripes = torch.tensor([0.0, 1.0]).repeat(8).expand(1, 1, 16, 16)
    assert Resolutions([(4, 1)])[0].resize(stripes).std() < 0.1


@pytest.mark.parametrize("given", [[], [(16,)], [(16, 0)], [(0, 3)], [(16.0, 3)], [16, 32], [(16, 3, 1)]])
def test_other_schedules_are_refused(given: Any) -> None:
    with pytest.raises(Misuse, match="Resolutions"):
        Resolutions(given)
