"""decode(encode(m)) == m; whatever is not a message is refused by name, and costs no memory."""

import subprocess
import sys
import tracemalloc
from contextlib import suppress
from typing import get_args

import msgspec
import pytest
from fuzzers.frame_fuzz import fuzz_frames
from fuzzers.message_samples import message_samples
from hypothesis import given
from hypothesis import strategies as st

from taut.core import messages as m
from taut.errors import MalformedMessage
from taut.transport import framing
from taut.transport.framing import LIMIT_NBYTES, MAGIC, decode, encode, nbytes, payload_count

FAMILIES = (m.PeerMessage, m.WorkerMessage, m.SupervisorMessage)

EXAMPLES = message_samples()


def test_there_is_a_sample_of_every_message() -> None:
    kinds = {kind for family in FAMILIES for kind in get_args(family)}
    assert kinds == {type(message) for message in EXAMPLES}


def family_of(message: m.Message):
    return next(family for family in FAMILIES if isinstance(message, family))


def frames_of(message: m.Message) -> list[bytes]:
    return encode(message, [b"payload"] * payload_count(message))


def refuse(frames, family=m.PeerMessage, **options) -> str:
    with pytest.raises(MalformedMessage) as caught:
        decode(frames, family, **options)
    return str(caught.value)


def test_every_message_has_an_example() -> None:
    kinds = {kind for family in FAMILIES for kind in get_args(family)}
    assert {type(example) for example in EXAMPLES} == kinds


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was(message: m.Message) -> None:
    frames = frames_of(message)
    assert decode(frames, family_of(message)) == (message, frames[1:])
    assert nbytes(frames) == sum(len(frame) for frame in frames)
    for family in FAMILIES:
        if family is not family_of(message):
            assert "family" in refuse(frames, family)  # a peer cannot speak as the supervisor


@given(
    round=st.integers(0, 2**62),
    echo=st.integers(0, 2**62),
    runs=st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(1, 2**40), st.integers(0, 2**40)), max_size=20),
    data=st.data(),
)
def test_updates_come_back_with_their_payloads(round, echo, runs, data) -> None:
    message = m.Updates(round, echo, [m.Span(origin, lo, lo + more) for origin, lo, more in runs])
    payloads = [data.draw(st.binary(max_size=40)) for _ in runs]
    views = [memoryview(bytearray(payload)) for payload in payloads]
    assert decode(encode(message, views), m.PeerMessage) == (message, payloads)


@given(st.lists(st.binary(max_size=60), max_size=4), st.sampled_from(FAMILIES))
def test_any_bytes_are_a_message_or_refused(frames, family) -> None:
    try:
        decode(frames, family)
    except MalformedMessage:
        return
    assert frames[0][0] == MAGIC


@given(st.sampled_from(EXAMPLES), st.data())
def test_a_damaged_message_is_a_message_or_refused(message, data) -> None:
    frames = frames_of(message)
    header = bytearray(frames[0])
    for _ in range(data.draw(st.integers(1, 4))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(header)))
    for damaged in (bytes(header), bytes(header[:cut]), bytes(header) + b"\0"):
        with suppress(MalformedMessage):
            decode([damaged, *frames[1:]], family_of(message))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 99), inner),
    ),
    st.sampled_from([*(type(example).__name__ for example in EXAMPLES), "Nonsense"]),
    st.sampled_from(FAMILIES),
)
def test_any_msgpack_is_a_message_or_refused(value, name, family) -> None:
    for body in (value, [name, value], [name, *value] if isinstance(value, list) else [name]):
        with suppress(MalformedMessage):
            decode([bytes((MAGIC, m.PROTOCOL_VERSION)) + msgspec.msgpack.encode(body)], family)


def test_refusals_say_what_is_wrong() -> None:
    good = frames_of(m.StateRequest(0))
    assert "no frames" in refuse([])
    assert "nothing" in refuse([b""])
    assert "474554" in refuse([b"GET / HTTP"])
    assert f"version 250, expected {m.PROTOCOL_VERSION}" in refuse([bytes((MAGIC, 250)) + good[0][2:]])
    assert "StateRequest with 1 payload frames, expected 0" in refuse([*good, b"extra"])
    assert "Updates with 1 payload frames, expected 2" in refuse(frames_of(EXAMPLES[0])[:2])
    assert "runs backwards: 5..4" in refuse(encode(m.Updates(0, 0, [m.Span(0, 5, 4)]), [b""]))
    assert "StateChunk ends at 12 of 11" in refuse(encode(m.StateChunk(5, 11, {}), [b"payload"]))
    assert "Nonsense" in refuse([good[0][:2] + msgspec.msgpack.encode(["Nonsense"])])
    assert "int" in refuse([good[0][:2] + msgspec.msgpack.encode(["StateRequest", "zero"])])
    assert ">= 0" in refuse([good[0][:2] + msgspec.msgpack.encode(["StateRequest", -1])])


def test_too_large_is_refused() -> None:
    frames = frames_of(EXAMPLES[0])
    assert decode(frames, m.PeerMessage, limit_nbytes=nbytes(frames))[0] == EXAMPLES[0]
    assert "at most" in refuse(frames, limit_nbytes=nbytes(frames) - 1)
    assert "at most" in refuse([frames[0], bytes(LIMIT_NBYTES)])


@pytest.mark.parametrize(
    "claim",
    [
        b"\xdd\xff\xff\xff\xff",  # an array of four thousand million
        b"\x94\xa7Updates\x00\x00\xdd\xff\xff\xff\xff",  # as the spans
        b"\x97\xa6Report\x00\x00\xc2\xdf\xff\xff\xff\xff",  # a map as large
        b"\x92\xa6Failed\xdb\xff\xff\xff\xff",  # a text as large
        b"\x92\xacStateRequest" + b"\x91" * 100_000,  # very deep
        b"\x93\xacStateRequest\x00" + b"\x91" * 100_000 + b"\x00",  # very deep, where nothing belongs
    ],
)
def test_a_false_claim_of_size_costs_nothing(claim: bytes) -> None:
    header = framing._PREFIX + claim
    tracemalloc.start()
    try:
        for family in FAMILIES:
            refuse([header], family)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_mutated_frames_are_messages_or_refused() -> None:
    """Twenty thousand here; `make fuzz` makes five million."""
    found = fuzz_frames(EXAMPLES, 20_000, seed=0)
    assert found.refused > found.taken > 100


SIDE_BY_SIDE = """
import msgspec, sys, threading, types
from taut.transport import framing
sys.setswitchinterval(1e-6)
head = "from __future__ import annotations; from typing import Annotated; from msgspec import Meta, Struct"
fields = "a: Annotated[int, Meta(ge=0)]; b: dict[str, float]; c: {}; d: str | None = None"
for made in range(60):
    module = sys.modules[f"m{made}"] = types.ModuleType(f"m{made}")
    names = ["int", *(f"tuple[S{k}, ...]" for k in range(30))]
    kinds = [f"class S{k}(Struct, frozen=True, tag='s{k}'): {fields.format(names[k])}" for k in range(30)]
    exec("\\n".join([head, *kinds]), module.__dict__)
    data = msgspec.msgpack.encode(module.S29(1, {"a": 1.0}, (module.S28(1, {}, ()),)))
    begin = threading.Barrier(6)
    threads = [threading.Thread(target=lambda: (begin.wait(), framing._decoder(module.S29)(data))) for _ in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""


def test_threads_may_need_the_same_decoder_at_once() -> None:
    """msgspec crashes where two threads make decoders of the same records: a supervisor of islands died of it."""
    assert subprocess.run([sys.executable, "-c", SIDE_BY_SIDE], check=False, timeout=60).returncode == 0
