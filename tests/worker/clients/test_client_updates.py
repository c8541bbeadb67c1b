"""Clients' updates are clipped to a norm, in one direction, and summed; noise has the deviation that was asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taut.worker.clients.client_mean import ClientMean
from taut.worker.clients.client_updates import NoisySum, clip_update, gaussian

FLOATS = st.floats(-50, 50, width=32)
VECTORS = st.lists(FLOATS, min_size=4, max_size=4)


@given(VECTORS, VECTORS, st.floats(0.01, 200))
def test_a_clipped_update_is_no_longer_than_it_may_be_and_points_where_it_did(
    first: list[float], moved: list[float], longest: float
) -> None:
    start, x = torch.tensor(first), torch.tensor(first) + torch.tensor(moved)
    before = x.clone()
    clip_update([x[:1], x[1:]], [start[:1], start[1:]], longest)
    update, asked = (x - start).double(), (before - start).double()
    if asked.norm() <= longest:
        assert torch.equal(x, before)
    else:
        assert update.norm() == pytest.approx(longest, rel=1e-3, abs=1e-4)
        assert torch.allclose(update, asked * (longest / asked.norm()), atol=1e-4)


@given(VECTORS, st.lists(VECTORS, max_size=4), st.floats(0.01, 200))
def test_a_sum_without_noise_is_that_of_the_clipped_updates(
    first: list[float], clients: list[list[float]], longest: float
) -> None:
    x = torch.tensor(first)
    start, found = x.clone(), NoisySum([x], longest)
    expected = np.zeros(4)
    for moved in clients:
        x.copy_(start + torch.tensor(moved))
        found.add()
        update = (x - start).double().numpy()
        expected += update * min(1.0, longest / max(np.linalg.norm(update), 1e-30))
    np.testing.assert_allclose(found.with_noise(0.0), expected, rtol=1e-5, atol=1e-5)


def test_an_update_that_is_not_finite_counts_as_none() -> None:
    x = torch.zeros(2)
    found = NoisySum([x], 1.0)
    for value in (math.nan, math.inf, 0.5):
        x.fill_(value)
        found.add()
    assert found.with_noise(0.0).tolist() == [0.5, 0.5]


def test_a_clip_that_no_update_reaches_is_the_identity() -> None:
    clipped, free = torch.ones(3), torch.ones(3)
    means = [ClientMean([clipped], clip=1e9), ClientMean([free])]
    for mean, x in zip(means, (clipped, free), strict=True):
        for moved in (0.1, 0.3):
            mean.restart()
            x.add_(moved)
            mean.add(7)
        mean.write()
    assert torch.equal(clipped, free)


def test_noise_is_normal_and_never_the_same() -> None:
    drawn = gaussian(400_001)
    assert len(drawn) == 400_001
    assert abs(drawn.mean()) < 5 / math.sqrt(len(drawn)) and abs(drawn.std() - 1) < 5 / math.sqrt(2 * len(drawn))
    assert abs((drawn**4).mean() - 3) < 5 * math.sqrt(96 / len(drawn))
    half = len(drawn) // 2
    assert abs((drawn[:half] * drawn[half : 2 * half]).mean()) < 5 / math.sqrt(half)
    assert not np.array_equal(gaussian(4), gaussian(4))
    found = NoisySum([torch.zeros(100_000)], 1.0).with_noise(0.25)
    assert found.std() == pytest.approx(0.25, rel=0.02)
