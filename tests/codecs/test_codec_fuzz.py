"""Whatever the bytes, they are a valid update or they are refused: 100,000 mutations of payloads of every kind."""

import numpy as np
import pytest

from taut.codecs import REGISTRY, DeMo, Feedback, Header, Kind, parse, validate
from taut.codecs.packing import write_bitmap
from taut.codecs.payload import COUNTS, PAIRS, build, header
from taut.codecs.rice import encode
from taut.errors import MalformedMessage
from taut.testing import fuzz_payloads

SIZE = 4224  # a chunk of demo's and a little more; all others are of 64 to 600 elements


def emitted(written, length: int, lo: int = 0) -> list[bytes]:
    codec, w = parse(written), np.zeros(lo + length, np.float32)
    shapes = ((16, length // 32), (length - length // 32 * 16,)) if lo == 0 and length >= 64 else ()
    state = codec.start(w, 2, shapes=shapes)
    rng = np.random.default_rng(length)
    payloads = []
    for _ in range(20):
        w += rng.standard_normal(len(w), np.float32) * np.float32(0.02)
        payload = codec.emit(state, 0 if codec.whole else lo, lo + length)
        payloads += [] if payload is None else [payload]
    return payloads[-1:]


def made(kind: Kind, length: int = 200, base: int = 128) -> bytes:
    """Of the kinds that come from merging, or only now and then."""
    rng = np.random.default_rng(kind)
    at = np.sort(rng.permutation(length)[: length // 8])
    if kind is Kind.WORDS:
        return build(Header(kind, 0.25, base, length, 9), rng.integers(0, 2 * length, 9).astype(np.uint32))
    if kind is Kind.RICE:
        words = (at << 1 | rng.integers(0, 2, at.size)).astype(np.uint32)
        return build(Header(kind, 0.25, base, length, at.size), encode(words, length))
    if kind is Kind.BITMAP:
        return build(Header(kind, 0.25, base, length, at.size), write_bitmap(at, at % 2 == 0, length))
    if kind in PAIRS:
        numbers = rng.integers(-9, 9, at.size).astype(PAIRS[kind])
        return build(Header(kind, 0.25, base, length, at.size), at.astype(np.uint32), numbers)
    assert kind in COUNTS
    return build(Header(kind, 0.25, base, length, length), rng.integers(-99, 99, length).astype(COUNTS[kind]))


@pytest.fixture(scope="module")
def payloads() -> list[bytes]:
    found = [made(kind) for kind in (Kind.WORDS, Kind.RICE, Kind.BITMAP, *COUNTS, *PAIRS)]
    for name in REGISTRY:
        for length, lo in ((300, 0), (257, 64)):
            found += [] if parse(name).whole and lo else emitted(name, length, lo)
    return [
        *found,
        *emitted(Feedback(DeMo(4)), SIZE),
        *emitted("topk:density=0.1", 600),
        *emitted("randomk:density=0.1", 600),
    ]


def test_every_kind_is_there(payloads):
    assert {header(payload).kind for payload in payloads} == set(Kind)


def test_mutations_are_refused_or_harmless(payloads):
    found = fuzz_payloads(payloads, SIZE, 100_000, seed=5)
    assert found.refused + found.taken == 100_000
    assert found.taken > 5_000
    assert found.refused > 50_000
    assert len(found.reasons) > 20  # many checks had their turn


def test_a_codec_with_exact_sums_refuses_what_would_round(payloads):
    state = parse("threshold:tau=2^-8").start(np.zeros(SIZE, np.float32), 2)
    for payload in payloads:
        if header(payload).kind in (Kind.DENSE, Kind.SPARSE, Kind.LOWRANK, Kind.COSINES):
            with pytest.raises(MalformedMessage, match="exact"):
                parse("threshold:tau=2^-8").absorb(state, payload)


@pytest.mark.parametrize("kind", [Kind.WORDS, Kind.RICE, Kind.BITMAP, *COUNTS, *PAIRS])
def test_a_quantum_whose_multiples_overflow_is_refused(kind):
    payload = made(kind)
    for quantum in (1e38, 3.4e38):
        raw = build(header(payload).__class__(kind, quantum, 128, 200, header(payload).count)) + payload[28:]
        if kind in (Kind.RICE, Kind.BITMAP):
            assert validate(raw, SIZE).quantum == np.float32(quantum)
        else:
            with pytest.raises(MalformedMessage, match="overflow"):
                validate(raw, SIZE)


def test_the_fuzzer_sees_what_it_should(payloads, monkeypatch):
    """Were a check left out, it would say so."""
    from taut.codecs.forms import FORMS

    sparse = [payload for payload in payloads if header(payload).kind is Kind.SPARSE]
    monkeypatch.setattr(type(FORMS[Kind.SPARSE]), "check", lambda self, head, body: None)
    with pytest.raises((AssertionError, IndexError, ValueError)):
        fuzz_payloads(sparse, SIZE, 2_000, seed=1)
