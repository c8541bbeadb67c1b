"""The mean of several clients on one worker: by their samples, each from the same weights."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from taut.worker.clients.client_mean import ClientMean

FLOATS = st.floats(-100, 100, width=32)
CLIENTS = st.lists(st.tuples(st.integers(1, 500), st.lists(FLOATS, min_size=3, max_size=3)), max_size=6)


@given(st.lists(FLOATS, min_size=3, max_size=3), CLIENTS)
def test_it_is_the_mean_by_samples_and_no_client_sees_another(start: list[float], clients: list) -> None:  # type: ignore[type-arg]
    x, buffer = torch.tensor(start), torch.tensor(start[:1], dtype=torch.float16)
    first = x.clone()
    mean = ClientMean([x], [buffer])
    for samples, moved in clients:
        mean.restart()
        assert torch.equal(x, first)
        x += torch.tensor(moved)
        mean.add(samples)
    assert mean.write() == sum(samples for samples, _ in clients)
    if not clients:
        assert torch.equal(x, first)
        return
    made = [(first + torch.tensor(moved)).double().numpy() for _, moved in clients]
    expected = np.average(made, axis=0, weights=[samples for samples, _ in clients])
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6, atol=1e-5)


@given(st.lists(FLOATS, min_size=3, max_size=3), st.integers(1, 500))
def test_one_client_alone_is_the_mean_bit_by_bit(values: list[float], samples: int) -> None:
    x = torch.zeros(3)
    mean = ClientMean([x])
    x += torch.tensor(values)
    mean.add(samples)
    mean.write()
    assert torch.equal(x, torch.zeros(3) + torch.tensor(values))
