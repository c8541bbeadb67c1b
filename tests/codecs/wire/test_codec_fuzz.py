"""Whatever the bytes, they are a valid update or they are refused: 100,000 mutations of payloads of every kind."""

import numpy as np
import pytest
from fuzzers.payload_samples import SIZE, made, payload_samples

from taut.codecs import Kind, parse, validate
from taut.codecs.wire.payload import COUNTS, PAIRS, build, header
from taut.errors import MalformedMessage
from taut.testing import fuzz_payloads


@pytest.fixture(scope="module")
def payloads() -> list[bytes]:
    return payload_samples()


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
    from taut.codecs.wire.layouts import LAYOUTS

    sparse = [payload for payload in payloads if header(payload).kind is Kind.SPARSE]
    monkeypatch.setattr(type(LAYOUTS[Kind.SPARSE]), "check", lambda self, head, body: None)
    with pytest.raises((AssertionError, IndexError, ValueError)):
        fuzz_payloads(sparse, SIZE, 2_000, seed=1)
