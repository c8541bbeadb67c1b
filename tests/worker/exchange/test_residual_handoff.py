"""What a codec keeps for later: it is handed on by a worker that leaves, and NaN never gets into it unseen."""

import numpy as np
import pytest
import torch
from torch import nn

import taut
from taut.codecs import parse
from taut.errors import MalformedMessage, Misuse, NonFiniteLoss, NonFiniteUpdate
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.replica import Replica
from taut.worker.model.vector_views import FlatParamsCodec
from taut.worker.time_split import Stopwatch

RESIDUAL = ["threshold:tau=2^-6", "topk:density=0.1", "int8", "sign", "onebit", "powersgd:rank=1", "demo"]


def replica(codec: str) -> Replica:
    torch.manual_seed(0)
    made = Replica(FlatParams(nn.Sequential(nn.Linear(7, 9), nn.Linear(9, 3))), parse(codec))
    made.found(workers=3)
    return made


def moved(one: Replica, seed: int) -> None:
    one.params.vector += np.random.default_rng(seed).standard_normal(one.params.size, np.float32) * np.float32(0.01)
    one.emit()


@pytest.mark.parametrize("codec", RESIDUAL)
def test_nothing_is_lost_when_a_worker_leaves(codec):
    """The receiver's residual afterwards is the sum of both, to the last bit of the addition."""
    leaver, receiver = replica(codec), replica(codec)
    moved(leaver, 1)
    moved(receiver, 2)
    before = receiver.codec_state.r + leaver.codec_state.r
    assert leaver.codec_state.r.any()
    for payload in leaver.residual_parts():
        receiver.inherit(payload)
    assert receiver.codec_state.r.tobytes() == before.tobytes()


def test_the_tether_leaves_nothing():
    leaver = replica("tether:slack=2^-6")
    moved(leaver, 1)
    assert list(leaver.residual_parts()) == []


def test_without_feedback_nothing_is_left():
    leaver = replica("qsgd")
    moved(leaver, 1)
    assert leaver.codec_state.r.any()
    assert list(leaver.residual_parts()) == []


def coder(codec: str) -> FlatParamsCodec:
    return FlatParamsCodec(parse(codec), replica("dense").params, Stopwatch(), seed=0, workers=3)


@pytest.mark.parametrize("codec", RESIDUAL)
def test_a_coder_goes_on_with_what_another_left(codec):
    """What it says next and keeps then is its own and the other's, within rounding."""
    leaver, receiver = coder(codec), coder(codec)
    v = np.random.default_rng(0).standard_normal(leaver.size, np.float32)
    leaver.encode(v, 2.0)
    receiver.encode(v, 1.0)
    assert leaver.left is not None and receiver.left is not None
    both = leaver.left + receiver.left
    for part in leaver.residual_parts():
        receiver.inherit(part)
    assert receiver.left.tobytes() == both.tobytes()


def test_a_turn_that_was_broken_off_is_handed_on_too():
    """It was encoded, and nobody was told."""
    leaver, receiver = coder("threshold:tau=2^-1"), coder("threshold:tau=2^-1")
    v = np.random.default_rng(0).standard_normal(leaver.size, np.float32)
    leaver.prepare(v, 1.0)
    for part in leaver.residual_parts():
        receiver.inherit(part)
    assert receiver.left == pytest.approx(v, abs=1e-6)


def test_an_inheritance_is_checked():
    receiver = replica("threshold:tau=2^-6")
    good = next(iter(_left(receiver)))
    for bad in (
        b"",
        good[:-1],
        good[:1] + b"\xff" + good[2:],
        receiver.codec.emit(receiver.codec_state, 0, receiver.params.size) or b"",
    ):
        with pytest.raises(MalformedMessage):
            receiver.inherit(bad)


def _left(one: Replica):
    moved(one, 3)
    return one.residual_parts()


@pytest.mark.parametrize("codec", ["dense", "topk", "int8", "sign", "powersgd", "qsgd", "demo", "dgc", "fp16", "onebit"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_named_and_nothing_is_sent(codec, value):
    one = replica(codec)
    shared = one.shared().copy()
    with torch.no_grad():
        one.params.model[1].weight[2, 4] = value
    with pytest.raises(NonFiniteUpdate, match=r"gradient of '1\.weight'"):
        one.emit()
    assert one.shared().tobytes() == shared.tobytes()


def test_a_loss_that_is_not_finite_names_the_parameter():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    worker = taut.join(model, optimizer)
    with torch.no_grad():
        model.bias.fill_(float("nan"))
    with pytest.raises(NonFiniteLoss, match=r"parameter 'bias' has weights"):
        worker.step(model(torch.ones(1, 2)).sum())
    worker.leave()


def test_a_codec_may_be_given_as_itself():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for codec in (taut.codecs.TopK(0.001), "topk:density=0.001", {"name": "topk", "density": 0.001}):
        with taut.join(model, optimizer, codec=codec):
            pass
    with pytest.raises(Misuse, match="above 0 and up to 1"):
        taut.join(model, optimizer, codec={"name": "topk", "density": 0})
