"""The laws of compressors: what each states of itself holds, whatever the vector."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from taut.codecs import REGISTRY, CodecInfo, Compressor, CompressorState, Feedback, Int8, Sign, TopK, parse
from taut.codecs.algorithms.qsgd import QSGD
from taut.testing import check_codec, check_compressor
from taut.testing.checks.compressor_check import check_error, throws_dice

SPECS = [
    "topk:density=1",
    "topk:density=0.001",
    "topk:density=0.1,feedback=no",
    "int8:feedback=no",
    "onebit:column=64",
    "sign:vote=yes",
    "qsgd:levels=15,feedback=yes",
    "qsgd:levels=1,bucket=64",
    "terngrad:clip=0",
    "randomk:density=0.05,scale=yes,feedback=no",
    "randomk:density=1",
    "dgc:density=0.05,momentum=0,warmup=0,clip=1",
    "powersgd:rank=1",
    "powersgd:rank=9",
    "chunked:density=1",
    "chunked:density=0.3,bits=1",
    "demo:top=8",
    "demo:top=4096,decay=1",
    "demo:sign=no,decay=0",
]
NAMES = [name for name, kind in REGISTRY.items() if issubclass(kind, Compressor)]


@pytest.mark.parametrize("name", NAMES)
def test_conforms_as_it_is(name):
    check_compressor(parse(name).compressor)


@pytest.mark.parametrize("spec", SPECS)
def test_conforms_as_it_is_set(spec):
    check_codec(parse(spec), size=300, steps=6)


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_is(name):
    facts = parse(name).facts
    assert facts.title and facts.bound and facts.paper
    assert 0.0 < facts.bits <= 32.0
    assert parse(name).keep or facts.unbiased or name == "terngrad"  # without feedback and with a bias, of its clipping


LARGE = 2.0**10
numbers = st.one_of(st.floats(-LARGE, LARGE, width=32), st.sampled_from([0.0, 1.0, -1.0, 2.0**-9, 0.1]))
plain = numbers.filter(lambda number: number == 0.0 or abs(number) > 1e-6)


@settings(max_examples=some(10), deadline=None)
@given(arrays(np.float32, st.integers(1, 400), elements=plain, fill=st.sampled_from([0.0, 0.25])))
@pytest.mark.parametrize("name", NAMES)
def test_the_stated_error_holds_for_every_vector(name, v):
    compressor = parse(name).compressor
    check_error(compressor, v, dice=throws_dice(compressor))


@dataclass(frozen=True)
class Halving(Sign):
    """States what is not true."""

    name: ClassVar[str] = "halving"

    @property
    def facts(self) -> CodecInfo:
        return replace(super().facts, error=0.25)


@dataclass(frozen=True)
class Spendthrift(Int8):
    @property
    def facts(self) -> CodecInfo:
        return replace(super().facts, bits=4.0)


@dataclass(frozen=True)
class Leaning(QSGD):
    """Says that it is unbiased, and is not: it rounds what is a tenth too large."""

    def compress(self, v, lo, memory):
        return super().compress(v * 1.1, lo, memory)


@dataclass(frozen=True)
class Forgetful(TopK):
    """Another payload each time, though it throws no dice."""

    def compress(self, v, lo, memory):
        COUNTER.append(1)
        return super().compress(v * (1.0 + 1e-6 * len(COUNTER)), lo, memory)


COUNTER: list[int] = []


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (Halving(), "stated: at most 0.25"),
        (Spendthrift(), "stated: 4"),
        (Leaning(), "biased"),
        (Forgetful(0.9), "for the same vector"),
    ],
)
def test_what_is_not_true_is_found(broken: Compressor, says):
    with pytest.raises(AssertionError, match=says):
        check_compressor(broken)


@dataclass(frozen=True)
class Wasteful(TopK):
    """Sends something else than it says it does."""

    def compress(self, v, lo, memory):
        piece = super().compress(v, lo, memory)
        return piece and replace(piece, q=piece.q * np.float32(0.5))


def test_a_residual_that_is_not_what_was_left_out_is_found(monkeypatch):
    monkeypatch.setitem(REGISTRY, "topk", Wasteful)
    with pytest.raises(AssertionError, match="what is left"):
        check_codec(Feedback(Wasteful(0.1)))


def test_pieces_change_nothing():
    """A vector longer than a piece, whole and piece by piece."""
    v = np.random.default_rng(0).standard_normal((1 << 16) + 4096 + 200, np.float32)
    for name in NAMES:
        compressor = parse(name).compressor
        if not compressor.piece:
            continue
        whole = compressor.compress(v, 0, CompressorState(len(v)))
        assert compressor.payload([whole], 0, len(v)) == compressor.encode(v, CompressorState(len(v))), name
