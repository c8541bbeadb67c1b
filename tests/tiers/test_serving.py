"""Serving in tiers, over real sockets: each tier in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from taut.core.messages import SUPERVISOR
from taut.errors import MalformedMessage
from taut.tiers import Signs, Tiers
from taut.tiers.messages import Answers, Features, check_answers, packed, unpacked
from taut.tiers.serving import DeviceTier, Uplink, Upper, UpperTier
from taut.transport.framing import decode, encode
from taut.transport.keys import RunKeys, Token, WorkerKeys
from taut.transport.zmq.factory import Zmq

SAMPLES = 24
VIEWS = [torch.randn(SAMPLES, 5, generator=torch.Generator().manual_seed(number)) for number in range(2)]


def model_of() -> Tiers:
    torch.manual_seed(0)
    model = Tiers(
        [nn.Sequential(nn.Linear(5, 6), Signs()) for _ in range(2)],
        [nn.Linear(6, 3) for _ in range(2)],
        edge=nn.Linear(6, 7),
        edge_exit=nn.Linear(7, 3),
        cloud=nn.Linear(7, 8),
        cloud_exit=nn.Linear(8, 3),
    )
    return model.eval()


MODEL = model_of()


@contextmanager
def served(
    tier: Upper, sure: float = 0.0, up: Uplink | None = None, wait_s: float = 0.05
) -> Iterator[tuple[UpperTier, RunKeys]]:
    """An upper tier, at work in a thread of its own."""
    keys = RunKeys.generate()
    socket = Zmq().listen(keys, "127.0.0.1", 0, None)
    upper, over = UpperTier(socket, MODEL, tier, sure, up, wait_s=wait_s), threading.Event()

    def work() -> None:
        while not over.is_set():
            upper.work(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield upper, keys
    finally:
        over.set()
        thread.join()
        socket.close()


@contextmanager
def uplink(address: str, keys: RunKeys, timeout_s: float = 20.0) -> Iterator[Uplink]:
    transport = Zmq().connect(WorkerKeys.generate(), "127.0.0.1", None, (address, Token.parse(keys.token)))
    try:
        yield Uplink(transport, timeout_s)
    finally:
        transport.close()


def expected(exit_: str, present: list[int]) -> list[int]:
    mask = torch.zeros(SAMPLES, 2, dtype=torch.bool)
    mask[:, present] = True
    with torch.no_grad():
        features = [device(view) for device, view in zip(MODEL.devices, VIEWS, strict=True)]
        fused = MODEL.edge(MODEL.fuse(features, mask))
        half = fused.half().float()  # on its way to the cloud
        logits = MODEL.edge_exit(fused) if exit_ == "edge" else MODEL.cloud_exit(MODEL.cloud(half))
    return [int(label) for label in logits.argmax(1)]


def test_unsure_devices_get_what_edge_and_cloud_make_of_both_of_them() -> None:
    with (
        served("cloud") as (cloud, keys),
        uplink(cloud.socket.address, keys) as above,
        served("edge", up=above, wait_s=60.0) as (edge, edge_keys),
        uplink(edge.socket.address, edge_keys) as one,
        uplink(edge.socket.address, edge_keys) as other,
    ):
        devices = [DeviceTier(MODEL, 0, -1.0, one), DeviceTier(MODEL, 1, -1.0, other)]
        found: dict[int, list[int]] = {}

        def answer(number: int) -> None:
            answers = devices[number].answer(VIEWS[number])
            assert {each.tier for each in answers} == {"cloud"}
            found[number] = [each.label for each in answers]

        threads = [threading.Thread(target=answer, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found[0] == found[1] == expected("cloud", [0, 1])
        assert edge.answered == {"edge": 0, "cloud": SAMPLES} and edge.refused == cloud.refused == 0


def test_a_sure_edge_answers_and_a_sure_device_sends_next_to_nothing() -> None:
    with served("edge", sure=1.0) as (edge, keys), uplink(edge.socket.address, keys) as up:
        unsure = DeviceTier(MODEL, 1, -1.0, up).answer(VIEWS[1], first=100)
        assert [each.label for each in unsure] == expected("edge", [1])
        assert {each.tier for each in unsure} == {"edge"} and unsure[0].sample == 100
        before = up.sent
        assert before < 100 + 4 * SAMPLES, "6 signs are a byte, a number of a sample one to three"
        sure = DeviceTier(MODEL, 1, 1.0, up).answer(VIEWS[1])
        assert {each.tier for each in sure} == {"device"} and up.sent - before < 40


@pytest.mark.parametrize("why", ["gone", "another token"])
def test_without_an_uplink_the_device_answers(why: str) -> None:
    alone = DeviceTier(MODEL, 0, 1.0).answer(VIEWS[0])
    with served("edge") as (edge, keys):
        address, token = edge.socket.address, keys if why == "gone" else RunKeys.generate()
        if why == "another token":
            with uplink(address, token, 0.3) as up:
                assert DeviceTier(MODEL, 0, -1.0, up).answer(VIEWS[0]) == alone
            assert not sum(edge.answered.values()), "it has not seen a byte"
    if why == "gone":
        with uplink(address, token, 0.2) as up:
            device = DeviceTier(MODEL, 0, -1.0, up)
            assert device.answer(VIEWS[0]) == alone
            assert device.answer(VIEWS[0]) == alone, "at once: it is not asked again so soon"


def test_a_device_that_was_waited_for_in_vain_is_waited_for_again_when_it_speaks() -> None:
    with served("edge", sure=1.0) as (edge, keys), uplink(edge.socket.address, keys) as up:
        assert not edge._absent
        DeviceTier(MODEL, 1, -1.0, up).answer(VIEWS[1])
        assert edge._absent == {0}
        with uplink(edge.socket.address, keys) as other:
            other.ask(packed(7, 0, [1], torch.ones(1, 6)))
            assert edge._absent == {1}, "now device 1 is the one that did not come"


def test_nonsense_is_counted_and_the_edge_goes_on() -> None:
    good = packed(1, 0, [0], torch.ones(1, 6))
    with served("edge", sure=1.0) as (edge, keys), uplink(edge.socket.address, keys) as up:
        wrong = [
            [b"nonsense"],
            encode(packed(0, 9, [0], torch.ones(1, 6))),  # there is no such device
            encode(packed(0, 0, [0], torch.ones(1, 5))),  # the model takes 6
            encode(Features(0, 0, [0, 1], [6], "bits", b"x")),
        ]
        for frames in wrong:
            up.transport.send(SUPERVISOR, frames)
        assert up.ask(good).keys() == {0}
        assert edge.refused == len(wrong)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 50), unique=True, min_size=1, max_size=5),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_features_come_back_as_they_were_sent(samples: list[int], shape: list[int], signs: bool, seed: int) -> None:
    values = torch.randn(len(samples), *shape, generator=torch.Generator().manual_seed(seed))
    values = values.sign() if signs else values
    message, _ = decode(encode(packed(3, 1, samples, values)), Features)
    assert isinstance(message, Features) and message.kind == ("bits" if signs else "float16")
    assert torch.equal(unpacked(message), values if signs else values.half().float())


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 3), max_size=4),
    st.lists(st.integers(1, 70), max_size=4),
    st.sampled_from(["bits", "float16"]),
    st.binary(max_size=64),
)
def test_any_features_are_taken_whole_or_refused(samples: list[int], shape: list[int], kind: str, data: bytes) -> None:
    try:
        found = unpacked(Features(0, 0, samples, shape, kind, data))  # type: ignore[arg-type]
    except MalformedMessage:
        return
    assert found.shape == (len(samples), *shape) and bool(found.isfinite().all())


def test_answers_for_other_samples_are_refused() -> None:
    check_answers(Answers(0, [2, 1], [0, 0], ["edge", "cloud"], [0.0, 1.0]), [1, 2])
    for wrong in (Answers(0, [1], [0], ["edge"], [0.0]), Answers(0, [1, 2], [0], ["edge", "edge"], [0.0, 0.0])):
        with pytest.raises(MalformedMessage):
            check_answers(wrong, [1, 2])
