"""LARS and LAMB do what their equations say, and what PyTorch expects of an optimizer."""

import copy
import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import Misuse
from taut.optim import LAMB, LARS

SHAPES = st.sampled_from([(5,), (3, 4), (1, 1), (2, 3, 2), ()])
RATES = st.floats(1e-3, 2.0)
SHARES = st.floats(1e-3, 0.5)  # of |w|: a step of all of it may end on 0 but for rounding, where the trust ratio jumps
DECAYS = st.sampled_from([0.0, 1e-4, 0.01, 0.3])
SEEDS = st.integers(0, 2**32 - 1)
BOTH = [
    pytest.param(lambda p, **more: LARS(p, **{"lr": 5.0, **more}), id="LARS"),
    pytest.param(lambda p, **more: LAMB(p, **{"lr": 0.05, **more}), id="LAMB"),
]


def reference_lars(w, gradients, lr, momentum, decay, eta, adapt):
    v = np.zeros_like(w)
    for g in gradients:
        local, own = 1.0, decay if adapt else 0.0
        if adapt and np.linalg.norm(w) > 0 and np.linalg.norm(g) + own * np.linalg.norm(w) > 0:
            local = eta * np.linalg.norm(w) / (np.linalg.norm(g) + own * np.linalg.norm(w))
        v = momentum * v + lr * local * (g + own * w)
        w = w - v
    return w


def reference_lamb(w, gradients, lr, betas, eps, decay, adapt):
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(gradients, start=1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        u = (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps) + (decay * w if adapt else 0.0)
        trust = 1.0
        if adapt and np.linalg.norm(w) > 0 and np.linalg.norm(u) > 0:
            trust = np.linalg.norm(w) / np.linalg.norm(u)
        w = w - lr * trust * u
    return w


def case(seed, shape, steps=4):
    """Weights (sometimes all zero) and gradients (sometimes zero, of very different sizes)."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(shape) * rng.choice([0.0, 0.01, 1.0, 30.0])
    return np.asarray(w), [
        np.asarray(rng.standard_normal(shape) * rng.choice([0.0, 1e-3, 1.0, 50.0])) for _ in range(steps)
    ]


def train(make, w, gradients):
    parameter = torch.nn.Parameter(torch.tensor(w, dtype=torch.float64))
    memory = parameter.data_ptr()
    optimizer = make([parameter])
    for g in gradients:
        parameter.grad = torch.tensor(g, dtype=torch.float64)
        optimizer.step()
        assert np.array_equal(parameter.grad.numpy(), g), "the gradient belongs to the caller"
    assert parameter.data_ptr() == memory, "the flat vector holds the weights: they must change in place"
    return parameter.detach().numpy()


@settings(max_examples=60, deadline=None)
@given(SEEDS, SHAPES, RATES, st.sampled_from([0.0, 0.5, 0.9]), DECAYS, st.sampled_from([0.001, 0.02]))
@pytest.mark.parametrize("adapt", [None, True, False])
def test_lars_is_its_equation(adapt, seed, shape, lr, momentum, decay, eta):
    w, gradients = case(seed, shape)
    by_shape = len(shape) > 1 if adapt is None else adapt
    expected = reference_lars(w, gradients, lr, momentum, decay, eta, by_shape)
    given_settings = {"lr": lr, "momentum": momentum, "weight_decay": decay, "eta": eta, "adapt": adapt}
    np.testing.assert_allclose(train(lambda p: LARS(p, **given_settings), w, gradients), expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(SEEDS, SHAPES, SHARES, st.sampled_from([(0.9, 0.999), (0.0, 0.5), (0.8, 0.0)]), DECAYS)
@pytest.mark.parametrize("adapt", [None, True, False])
def test_lamb_is_its_equation(adapt, seed, shape, lr, betas, decay):
    w, gradients = case(seed, shape)
    by_shape = len(shape) > 1 if adapt is None else adapt
    expected = reference_lamb(w, gradients, lr, betas, 1e-6, decay, by_shape)
    given_settings = {"lr": lr, "betas": betas, "weight_decay": decay, "adapt": adapt}
    np.testing.assert_allclose(train(lambda p: LAMB(p, **given_settings), w, gradients), expected, rtol=1e-8, atol=1e-10)


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.floats(-20, 20), st.floats(0.01, 2.0))
def test_the_step_of_lars_does_not_know_the_scale_of_the_gradient(seed, exponent, lr):
    rng = np.random.default_rng(seed)
    w, g = rng.standard_normal((4, 6)), rng.standard_normal((4, 6))
    plain, scaled = (train(lambda p: LARS(p, lr=lr), w, [g * scale]) - w for scale in (1.0, 2.0**exponent))
    np.testing.assert_allclose(scaled, plain, rtol=1e-9, atol=1e-13)
    assert np.linalg.norm(plain) / np.linalg.norm(w) == pytest.approx(lr * 0.001)


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.floats(-20, 20), st.floats(0.001, 0.5), DECAYS)
def test_lamb_moves_by_its_share_of_the_weights(seed, exponent, lr, decay):
    rng = np.random.default_rng(seed)
    w, g = rng.standard_normal((4, 6)) * 2.0**exponent, rng.standard_normal((4, 6))
    moved = train(lambda p: LAMB(p, lr=lr, weight_decay=decay), w, [g]) - w
    assert np.linalg.norm(moved) / np.linalg.norm(w) == pytest.approx(lr)


@pytest.mark.parametrize("make", BOTH)
def test_training_works(make):
    torch.manual_seed(0)
    x = torch.randn(256, 8)
    y = torch.tanh(x @ torch.randn(8, 3)) + 0.5
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))
    matrices = [p for p in model.parameters() if p.ndim > 1]
    biases = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = make([{"params": matrices}, {"params": biases, "lr": 0.02}])
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10


@pytest.mark.parametrize("make", BOTH)
def test_a_saved_optimizer_goes_on_as_if_nothing_happened(make):
    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3)
    gradients = [[torch.randn_like(p) for p in model.parameters()] for _ in range(6)]

    def run(model, optimizer, some):
        for each in some:
            for parameter, g in zip(model.parameters(), each, strict=True):
                parameter.grad = g.clone()
            optimizer.step()

    optimizer = make(model.parameters())
    run(model, optimizer, gradients[:3])
    file, twin = io.BytesIO(), copy.deepcopy(model)
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    resumed = make(twin.parameters(), lr=0.0)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    run(model, optimizer, gradients[3:])
    run(twin, resumed, gradients[3:])
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("make", BOTH)
def test_groups_have_settings_of_their_own(make):
    moving, still = (torch.nn.Parameter(torch.ones(2, 2)) for _ in range(2))
    late, without = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2, 2))
    optimizer = make([{"params": [moving, without]}, {"params": [still], "lr": 0.0}])
    optimizer.add_param_group({"params": [late], "adapt": False})
    for parameter in (moving, still, late):
        parameter.grad = torch.full_like(parameter, 0.01)
    optimizer.step()
    assert torch.equal(still, torch.ones(2, 2)) and torch.equal(without, torch.ones(2, 2))
    assert not torch.equal(moving, torch.ones(2, 2)) and not torch.equal(late, moving)


@pytest.mark.parametrize("make", BOTH)
def test_the_closure_is_called_with_gradients_on(make):
    w = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = make([w])

    def closure():
        optimizer.zero_grad()
        loss = (w**2).sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert float(optimizer.step(closure)) == 6.0
    assert float((w.detach() ** 2).sum()) < 6.0


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_does_not_overflow(make, dtype):
    w = torch.nn.Parameter(torch.full((256, 256), 300.0, dtype=dtype))
    w.grad = torch.full_like(w, 40.0)
    make([w], weight_decay=0.01).step()
    assert w.dtype == dtype
    assert (w < 300).all() and torch.isfinite(w).all()


@pytest.mark.parametrize("make", BOTH)
def test_a_rate_may_be_a_tensor(make):
    ends = []
    for lr in (0.25, torch.tensor(0.25)):
        w = torch.nn.Parameter(torch.ones(2, 3))
        w.grad = torch.ones(2, 3)
        make([w], lr=lr).step()
        ends.append(w.detach())
    assert torch.equal(*ends)


@pytest.mark.parametrize("make", BOTH)
def test_no_number_is_fetched_from_the_device(make, monkeypatch):
    """On a GPU each .item() waits for everything queued before it."""
    w = torch.nn.Parameter(torch.ones(2, 3))
    w.grad = torch.ones(2, 3)
    optimizer = make([w])
    for name in ("item", "__bool__", "__float__", "tolist", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, lambda *_: pytest.fail("the host waited for the device"))
    optimizer.step()
    optimizer.step()


@pytest.mark.parametrize("make", BOTH)
def test_a_sparse_gradient_is_refused_before_anything_moved(make):
    first, table = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Embedding(4, 2, sparse=True)
    optimizer = make([first, table.weight])
    first.grad = torch.ones(2, 2)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(Misuse, match=r"sparse gradient of shape \(4, 2\).*SparseAdam"):
        optimizer.step()
    assert torch.equal(first, torch.ones(2, 2))


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (LARS, {"lr": -1.0}),
        (LARS, {"lr": float("nan")}),
        (LARS, {"lr": 1.0, "momentum": 1.0}),
        (LARS, {"lr": 1.0, "eta": -0.1}),
        (LARS, {"lr": 1.0, "weight_decay": -0.1}),
        (LARS, {"lr": 1.0, "adapt": "biases"}),
        (LAMB, {"lr": float("inf")}),
        (LAMB, {"betas": (0.9, 1.0)}),
        (LAMB, {"betas": (0.9,)}),
        (LAMB, {"eps": -1.0}),
    ],
)
def test_settings_that_cannot_work_are_refused(kind, wrong):
    *_, (name, value) = wrong.items()
    with pytest.raises(Misuse, match=name) as caught:
        kind([torch.nn.Parameter(torch.ones(2))], **wrong)
    assert str(value) in str(caught.value)
    optimizer = kind([torch.nn.Parameter(torch.ones(2))], lr=1.0)
    with pytest.raises(Misuse):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))], **wrong})
    assert len(optimizer.param_groups) == 1
