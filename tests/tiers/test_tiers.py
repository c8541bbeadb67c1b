"""A model over tiers: fusion, entropy, the joint loss, and where samples are answered."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import taut
from taut.errors import Misuse
from taut.tiers import Exits, Signs, Tiers, entropy, evaluate, joint_loss
from taut.tiers.model import Fusion

DEVICES, CLASSES = 3, 4


def model_of(fusion: Fusion = "max", gone: float = 0.0, signs: bool = True) -> Tiers:
    torch.manual_seed(0)
    last = Signs() if signs else nn.Tanh()
    return Tiers(
        [nn.Sequential(nn.Linear(5, 6), last) for _ in range(DEVICES)],
        [nn.Linear(6, CLASSES) for _ in range(DEVICES)],
        edge=nn.Sequential(nn.Linear(6 * (DEVICES if fusion == "concat" else 1), 7), last),
        edge_exit=nn.Linear(7, CLASSES),
        cloud=nn.Linear(7, 8),
        cloud_exit=nn.Linear(8, CLASSES),
        fusion=fusion,
        gone=gone,
    )


def data_of(samples: int = 40) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Each device sees the label through noise of its own."""
    generator = torch.Generator().manual_seed(1)
    y = torch.randint(CLASSES, (samples,), generator=generator)
    shown = torch.nn.functional.one_hot(y, 5).float()
    return [shown + 0.4 * torch.randn(samples, 5, generator=generator) for _ in range(DEVICES)], y


@pytest.mark.parametrize("fusion", ["max", "average", "concat"])
def test_all_exits_are_trained_together_by_workers_and_agree_with_the_labels(fusion: Fusion) -> None:
    views, y = data_of(256)
    model = model_of(fusion, gone=0.2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    with taut.join(model, optimizer) as worker:
        for *seen, targets in worker.batches((*views, y), batch_size=32, epochs=8):
            worker.step(joint_loss(model(seen), targets))
    for sure in (0.0, 0.5, 1.0):
        assert evaluate(model, views, y, device=sure, edge=sure).accuracy > 0.8
    assert all(evaluate(model, views, y, gone=[each]).accuracy > 0.8 for each in range(DEVICES))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["max", "average", "concat"]), st.integers(0, 2**31))
def test_fusion_is_that_of_the_devices_that_are_there(fusion: Any, seed: int) -> None:
    model = model_of(fusion)
    generator = torch.Generator().manual_seed(seed)
    features = [torch.randn(6, 4, 2, generator=generator) for _ in range(DEVICES)]
    present = torch.rand(6, DEVICES, generator=generator) < 0.6
    fused = model.fuse(features, present)
    for sample in range(6):
        there = [each[sample] for each, here in zip(features, present[sample], strict=True) if here]
        if fusion == "concat":
            expected = torch.cat([each[sample] * here for each, here in zip(features, present[sample], strict=True)])
        elif not there:
            expected = torch.zeros(4, 2)
        else:
            expected = torch.stack(there).amax(0) if fusion == "max" else torch.stack(there).mean(0)
        torch.testing.assert_close(fused[sample], expected)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=2, max_size=8), st.floats(-20, 20))
def test_entropy_is_between_0_and_1_and_is_the_same_for_shifted_logits(logits: list[float], shift: float) -> None:
    given = torch.tensor([logits], dtype=torch.float64)
    found = entropy(given).item()
    assert -1e-9 <= found <= 1 + 1e-9
    assert math.isclose(found, entropy(given + shift).item(), abs_tol=1e-6)
    assert math.isclose(entropy(torch.zeros_like(given)).item(), 1.0, abs_tol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.sets(st.integers(0, DEVICES - 1), max_size=DEVICES - 1), st.booleans())
def test_every_sample_is_answered_once_and_bytes_are_those_of_unsure_devices(
    device: float, edge: float, gone: set[int], uplink: bool
) -> None:
    model, (views, y) = model_of().eval(), data_of()
    found = evaluate(model, views, y, device=device, edge=edge, gone=gone, uplink=uplink)
    assert math.isclose(sum(found.shares.values()), 1.0, abs_tol=1e-6)
    known = [share * found.accuracies[name] for name, share in found.shares.items() if share]
    assert math.isclose(sum(known), found.accuracy, abs_tol=1e-6)
    assert found.raw == 5.0 * (DEVICES - len(gone))
    assert found.to_edge <= DEVICES - len(gone), "6 signs are a byte"
    assert math.isclose(found.to_cloud, found.shares["cloud"], abs_tol=1e-6)
    if not uplink:
        assert found.nbytes == 0 and found.shares["device"] == 1.0


def test_more_caution_never_answers_more_samples_at_the_devices() -> None:
    model, (views, y) = model_of().eval(), data_of()
    shares = [evaluate(model, views, y, device=sure / 10).shares["device"] for sure in range(11)]
    assert shares == sorted(shares) and shares[-1] == 1.0


def test_a_device_may_be_missing_in_training_but_never_all_of_them() -> None:
    model = model_of(gone=0.99)
    drawn = model._drawn(500, torch.device("cpu"))
    assert drawn is not None and bool(drawn.any(1).all()) and drawn.float().mean() < 0.5
    assert model.eval()._drawn(500, torch.device("cpu")) is None


def test_features_that_are_no_signs_are_two_bytes_each() -> None:
    model, (views, y) = model_of(signs=False).eval(), data_of()
    assert evaluate(model, views, y, device=0.0, edge=0.0).nbytes == 2 * (DEVICES * 6 + 7)


def test_misuse() -> None:
    views, y = data_of()
    with pytest.raises(Misuse, match="1 views: expected 3, one for each device"):
        model_of()(views[:1])
    with pytest.raises(Misuse, match="fusion='sum'"):
        model_of("sum")  # type: ignore[arg-type]
    with pytest.raises(Misuse, match=r"gone=1\.0"):
        model_of(gone=1.0)
    with pytest.raises(Misuse, match=r"gone=\[0, 1, 2\]"):
        evaluate(model_of(), views, y, gone=range(3))
    with pytest.raises(Misuse, match="weights"):
        joint_loss(Exits([torch.zeros(1, 2)], torch.zeros(1, 2), torch.zeros(1, 2)), torch.zeros(1).long(), (0, 0, 0))
    with pytest.raises(Misuse, match="at least 2 classes"):
        entropy(torch.zeros(3, 1))
