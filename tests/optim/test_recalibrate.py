"""Recalibrated statistics are those of the data; everything else is left as it was."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from taut.errors import Misuse
from taut.optim import recalibrate


class Net(nn.Module):
    """Convolution, norm, dropout, norm; a branch that is never taken; one layer that was frozen by its user."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(2), nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3, momentum=0.3), nn.Dropout(0.9), nn.Flatten()
        )
        self.head = nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4, momentum=None), nn.ReLU())
        self.unused = nn.BatchNorm1d(7)
        self.unused.running_mean.fill_(5.0)
        self.body[2].eval()

    def forward(self, x):
        return self.head(self.body(x))


def modes(model):
    return {name: module.training for name, module in model.named_modules()}


def momenta(model):
    return [module.momentum for module in model.modules() if hasattr(module, "momentum")]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(2, 9), min_size=1, max_size=6),
    st.sampled_from([(), (3,), (2, 3), (2, 1, 2)]),
    st.floats(-50, 50),
    st.sampled_from([0.1, None, 1.0]),
)
def test_statistics_are_those_of_the_pooled_data(seed, sizes, inner, offset, momentum):
    rng = np.random.default_rng(seed)
    data = [rng.standard_normal((n, 3, *inner)) * rng.uniform(0.5, 4) + offset + rng.normal() for n in sizes]
    kind = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[len(inner)]
    model = kind(3, momentum=momentum).double()
    model(torch.randn(4, 3, *inner, dtype=torch.float64))  # what was there before must not matter
    assert recalibrate(model, [torch.tensor(x) for x in data]) == len(sizes)
    values = np.concatenate([np.moveaxis(x, 1, -1).reshape(-1, 3) for x in data])
    np.testing.assert_allclose(model.running_mean, values.mean(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.running_var, values.var(axis=0, ddof=1), rtol=1e-9)
    assert model.num_batches_tracked == len(sizes) and model.momentum == momentum


def test_a_deep_model_keeps_everything_else():
    torch.manual_seed(0)
    model = Net()
    x = 3 * torch.randn(40, 2, 2, 2) + 1
    loader = DataLoader(TensorDataset(x, torch.zeros(40)), batch_size=16)
    before, speeds = modes(model), momenta(model)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert recalibrate(model, loader) == 3
    assert modes(model) == before and momenta(model) == speeds
    assert all(torch.equal(p, weights[name]) and p.grad is None for name, p in model.named_parameters())
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(model.unused.running_mean, torch.full((7,), 5.0)), "a branch never taken keeps what it had"
    torch.testing.assert_close(model.body[0].running_mean, x.mean(dim=(0, 2, 3)))
    torch.testing.assert_close(model.body[0].running_var, x.var(dim=(0, 2, 3)))
    # With dropout on, nine in ten of the head's inputs would be zero and the others ten times as large.
    whole = Net()
    whole.load_state_dict(model.state_dict())
    recalibrate(whole, [x])
    torch.testing.assert_close(whole.head[1].running_var, model.head[1].running_var, rtol=0.2, atol=0.0)


def test_the_result_serves_evaluation():
    """After an average of weights, evaluation agrees with what training mode would compute on the same data."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
    x = torch.randn(512, 4) * 5 + 2
    with torch.no_grad():
        wanted = model.train()(x)
        nn.init.constant_(model[1].running_mean, 9.0)
        stale = model.eval()(x)
        recalibrate(model, [x])
        assert not model.training
        assert (model(x) - wanted).abs().max() < 0.02 < (stale - wanted).abs().max()


def test_a_layer_used_twice_counts_both_uses():
    norm = nn.BatchNorm1d(1)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = norm

        def forward(self, x):
            return self.norm(input=x), self.norm(input=x + 10)

    x = torch.tensor([[1.0], [2.0], [3.0]])
    recalibrate(Twice(), [x])
    assert norm.running_mean.item() == pytest.approx(7.0)
    assert norm.running_var.item() == pytest.approx(torch.cat([x, x + 10]).var().item())


def test_statistics_that_were_lost_come_back():
    model = nn.BatchNorm1d(2)
    model.running_mean.fill_(float("nan"))
    model.running_var.fill_(float("inf"))
    recalibrate(model, [torch.randn(8, 2), torch.randn(8, 2)])
    assert torch.isfinite(model.running_mean).all() and torch.isfinite(model.running_var).all()


@pytest.mark.parametrize("fault", ["model", "data", "interrupt", "nothing", "kind"])
def test_if_it_fails_nothing_has_changed(fault):
    model = Net()
    model.head.train(False)
    raised = {"model": RuntimeError, "data": OSError, "interrupt": KeyboardInterrupt}.get(fault, Misuse)

    def batches():
        if fault == "nothing":
            return
        yield torch.randn(4, 2, 2, 2)
        if fault == "model":
            yield torch.randn(4, 5, 2, 2)
        if fault == "kind":
            yield {"x": torch.randn(4, 2, 2, 2)}
        raise raised("gone")

    before, speeds = modes(model), momenta(model)
    state = {name: t.clone() for name, t in model.state_dict().items()}
    with pytest.raises(raised):
        recalibrate(model, batches())
    assert modes(model) == before and momenta(model) == speeds
    assert all(torch.equal(t, state[name]) for name, t in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("model", [nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False), nn.Sequential()])
def test_without_statistics_nothing_is_read(model):
    assert recalibrate(model, (pytest.fail("read") for _ in range(3))) == 0


def test_the_limit_reads_no_batch_too_many():
    stream = iter([torch.randn(4, 2) for _ in range(5)])
    assert recalibrate(nn.BatchNorm1d(2), stream, limit=3) == 3
    assert len(list(stream)) == 2


@pytest.mark.parametrize("limit", [0, -1, 2.5, True])
def test_a_limit_that_cannot_be(limit):
    with pytest.raises(Misuse, match=f"limit={limit}"):
        recalibrate(nn.BatchNorm1d(2), [], limit=limit)


def test_what_cannot_be_recalibrated_says_so():
    with pytest.raises(Misuse, match="LazyBatchNorm"):
        recalibrate(nn.LazyBatchNorm1d(), [torch.randn(4, 2)])
    with pytest.raises(Misuse, match=r"of type dict.*tensor"):
        recalibrate(nn.BatchNorm1d(2), [{"x": torch.randn(4, 2)}])


def test_batches_go_to_the_models_device():
    """The meta device stands for a GPU: a batch left on the host would be refused."""
    seen = []

    class Probe(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2, device="meta")

        def forward(self, x):
            seen.append(x.device.type)
            raise EOFError

    with pytest.raises(EOFError):
        recalibrate(Probe(), [(torch.randn(4, 2), torch.zeros(4))])
    assert seen == ["meta"]


def test_the_package_and_the_scaling_rules_come_without_torch():
    code = "import sys, taut.optim; taut.optim.linear_scaling(0.1, 512); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_every_exported_name_is_there():
    import taut.optim

    assert all(callable(getattr(taut.optim, name)) for name in taut.optim.__all__)
    with pytest.raises(AttributeError, match=r"'taut\.optim' has no attribute 'Lion'"):
        taut.optim.Lion  # noqa: B018
