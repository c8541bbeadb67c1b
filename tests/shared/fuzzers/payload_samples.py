"""Valid payloads of every kind, small: fuzzing starts from these."""

from __future__ import annotations

import numpy as np

from taut.codecs import REGISTRY, Compressor, DeMo, Feedback, Header, Kind, parse
from taut.codecs.codec import Codec
from taut.codecs.wire.merge import write_bitmap
from taut.codecs.wire.payload import COUNTS, PAIRS, build
from taut.codecs.wire.rice import encode

SIZE = 4224  # a chunk of demo's and a little more; all other samples have 64 to 600 elements


def emitted(written: str | Codec | Compressor, length: int, lo: int = 0) -> list[bytes]:
    """Return what this codec emits for a vector that moves: one payload, or none."""
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
    """Make a payload of a kind that comes from merging, or only now and then."""
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


def payload_samples() -> list[bytes]:
    """Return payloads of every kind and every codec, for a vector of ``SIZE`` elements.

    >>> from taut.codecs.wire.payload import header
    >>> {header(payload).kind for payload in payload_samples()} == set(Kind)
    True
    """
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
