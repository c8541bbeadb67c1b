"""Muon does what its equations say: matrices step along the orthogonal factor of their momentum, the rest as by AdamW."""

import copy
import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import Misuse
from taut.optim import Muon, muon_groups
from taut.optim.muon import QUINTIC, orthogonal

SHAPES = st.sampled_from([(3, 4), (4, 3), (1, 1), (1, 6), (2, 3, 2), (5, 5)])
SEEDS = st.integers(0, 2**32 - 1)


def reference(w, gradients, lr, mu, nesterov, decay, iterations):
    a, b, c = QUINTIC
    m = np.zeros_like(w)
    for g in gradients:
        m = mu * m + g
        x = (g + mu * m if nesterov else m).reshape(w.shape[0], -1)
        if np.linalg.norm(x) > 0:
            x = x / np.linalg.norm(x)
        for _ in range(iterations):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        w = (1 - lr * decay) * w - lr * 0.2 * max(x.shape) ** 0.5 * x.reshape(w.shape)
    return w


def train(parameter, optimizer, gradients):
    for g in gradients:
        parameter.grad = torch.tensor(g, dtype=parameter.dtype)
        optimizer.step()
    return parameter.detach().numpy()


@settings(max_examples=50, deadline=None)
@given(
    SEEDS,
    SHAPES,
    st.floats(1e-4, 0.5),
    st.sampled_from([0.0, 0.95]),
    st.booleans(),
    st.sampled_from([0.0, 0.1]),
    st.integers(1, 5),
)
def test_a_matrix_steps_as_the_equation_says(seed, shape, lr, mu, nesterov, decay, iterations):
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(shape)
    gradients = [rng.standard_normal(shape) * rng.choice([0.0, 1e-3, 1.0, 50.0]) for _ in range(3)]
    parameter = torch.nn.Parameter(torch.tensor(w, dtype=torch.float64))
    memory = parameter.data_ptr()
    given_settings = {"lr": lr, "momentum": mu, "nesterov": nesterov, "weight_decay": decay, "iterations": iterations}
    found = train(parameter, Muon([parameter], **given_settings), gradients)
    expected = reference(w, gradients, lr, mu, nesterov, decay, iterations)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
    assert parameter.data_ptr() == memory, "the flat vector holds the weights: they must change in place"


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(1, 24), st.integers(1, 24), st.integers(-40, 40))
def test_the_step_has_singular_values_near_one_whatever_the_gradients_size(seed, rows, columns, exponent):
    """Newton-Schulz lifts every singular value above a hundredth of the norm; the vectors stay."""
    u = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    left, values, right = torch.linalg.svd(u, full_matrices=False)
    u = left @ torch.diag(values.clamp(min=0.05 * float(values.norm()))) @ right  # no direction that is all but missing
    made = orthogonal(u)
    assert torch.equal(orthogonal(u * 2.0**exponent), made), "a power of two changes no bit"
    inside = torch.linalg.svdvals(made)
    assert float(inside.min()) > 0.5 and float(inside.max()) < 1.3
    assert torch.allclose(orthogonal(u.mT), made.mT, atol=1e-4)
    assert torch.allclose(left.mT @ made @ right.mT, torch.diag(torch.diagonal(left.mT @ made @ right.mT)), atol=1e-3)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from([(), (5,), (3, 4)]), st.sampled_from([0.0, 0.1]))
def test_tensors_that_are_not_adapted_step_as_by_adamw(seed, shape, decay):
    rng = np.random.default_rng(seed)
    w, gradients = rng.standard_normal(shape), [rng.standard_normal(shape) for _ in range(4)]
    mine, theirs = (torch.nn.Parameter(torch.tensor(w)) for _ in range(2))
    own = Muon([{"params": [mine], "adapt": False}], lr=0.01, weight_decay=decay)
    adamw = torch.optim.AdamW([theirs], lr=0.01, weight_decay=decay if len(shape) > 1 else 0.0)
    np.testing.assert_allclose(train(mine, own, gradients), train(theirs, adamw, gradients), rtol=1e-9, atol=1e-12)


def test_groups_hold_every_parameter_once_and_hidden_matrices_alone_are_adapted():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = torch.nn.ModuleDict({"words": torch.nn.Embedding(5, 8), "layer": layer, "head": torch.nn.Linear(8, 5)})
    hidden, rest = muon_groups(model, model["head"], lr=0.5)
    everything = hidden["params"] + rest["params"]
    assert {id(one) for one in everything} == {id(one) for one in model.parameters()} and len(everything) == len(
        set(everything)
    )
    assert [tuple(one.shape) for one in hidden["params"]] == [(24, 8), (8, 8), (16, 8), (8, 16)]
    assert Muon([hidden, rest], lr=0.1).param_groups[1]["lr"] == 0.5
    with pytest.raises(Misuse, match="that the model does not have"):
        muon_groups(model, torch.nn.Linear(2, 2))


def test_training_works_and_a_saved_optimizer_goes_on():
    torch.manual_seed(0)
    x = torch.randn(256, 8)
    y = torch.tanh(x @ torch.randn(8, 3)) + 0.5
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))

    def steps(model, optimizer, count):
        losses = []
        for _ in range(count):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    optimizer = Muon(muon_groups(model, model[2]), lr=0.02)
    losses = steps(model, optimizer, 150)
    assert losses[-1] < losses[0] / 10
    file, twin = io.BytesIO(), copy.deepcopy(model)
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    resumed = Muon(muon_groups(twin, twin[2]), lr=0.0)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert steps(model, optimizer, 3) == steps(twin, resumed, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_does_not_overflow(dtype):
    w = torch.nn.Parameter(torch.full((64, 64), 300.0, dtype=dtype))
    w.grad = torch.full_like(w, 4.0)
    Muon([w], lr=0.5).step()
    assert w.dtype == dtype and torch.isfinite(w).all() and (w < 300).all()


def test_no_number_is_fetched_from_the_device(monkeypatch):
    w, bias = torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(3))
    w.grad, bias.grad = torch.ones(2, 3), torch.ones(3)
    optimizer = Muon([w, bias])
    for name in ("item", "__bool__", "__float__", "tolist", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, lambda *_: pytest.fail("the host waited for the device"))
    optimizer.step()
    optimizer.step()


@pytest.mark.parametrize(
    "wrong",
    [
        {"lr": -1.0},
        {"momentum": 1.0},
        {"iterations": 0},
        {"iterations": 2.5},
        {"eps": -1.0},
        {"betas": (0.9,)},
        {"weight_decay": -0.1},
        {"adapt": True},  # of a vector
    ],
)
def test_settings_that_cannot_work_are_refused(wrong):
    ((name, _),) = wrong.items()
    with pytest.raises(Misuse, match=name):
        Muon([torch.nn.Parameter(torch.ones(2))], **wrong)
