"""Fuzzing of payloads: any bytes are absorbed as a valid update, or ``MalformedMessage`` is raised and nothing has
changed; and the memory they cost is bounded.

    from taut.testing import fuzz_payloads
    fuzz_payloads([payload, ...], size=len(weights), count=100_000, seed=0)
"""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from taut.codecs import Dense, State, merge, validate
from taut.codecs.wire.payload import HEADER, Kind
from taut.errors import MalformedMessage

BATCH = 1000  # mutations between two checks of the memory
TRACED = 20  # one in 20 batches is traced, which takes three times as long
MERGED = 2  # one in 2 of those absorbed is merged with another
SPARE_NBYTES = 1 << 18  # whatever the payload
MOST = 64  # bytes that may be allocated at a time for each byte of a payload and of the vector

NUMBERS = (0, 1, 2, 3, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFFC00000, 0x80000000)
LONG = (0, 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63, 2**64 - 64, 2**64 - 1)
FIELDS = {  # of the header: offset, format, values that are tried
    "version": (1, "<B", (0, 2, 255)),
    "zero": (2, "<H", (1, 65535)),
    "quantum": (4, "<I", NUMBERS),
    "base": (8, "<Q", LONG),
    "length": (16, "<Q", LONG),
    "count": (24, "<I", NUMBERS),
}

Mutation = Callable[[bytearray, Sequence[bytes], random.Random], None]


@dataclass
class Fuzzed:
    """Counts of the mutated payloads. ``peak_nbytes``: the most that was allocated at a time, of those traced."""

    refused: int = 0
    taken: int = 0
    peak_nbytes: int = 0
    reasons: set[str] = field(default_factory=set, repr=False)


def fuzz_payloads(payloads: Sequence[bytes], size: int, count: int, seed: int) -> Fuzzed:
    """Change valid payloads for a vector of ``size`` elements in ``count`` ways, and absorb each; merge some. Raises
    ``AssertionError`` if a refused one changed anything, a taken one left a number that is not finite, or more memory was
    allocated than 256 KiB and 64 times the longest payload and the vector; anything but ``MalformedMessage`` goes
    through.

    >>> from taut.codecs import Header
    >>> from taut.codecs.wire.payload import build
    >>> word = build(Header(Kind.WORDS, 0.5, 0, 64, 1), np.array([6], np.uint32))
    >>> found = fuzz_payloads([word], size=64, count=500, seed=0)
    >>> found.refused + found.taken, found.refused > 0, found.taken > 0
    (500, True, True)
    """
    rng, found = random.Random(seed), Fuzzed()
    state = Dense().start(np.zeros(size, np.float32), 1)
    for payload in payloads:  # unchanged, all must be valid
        validate(payload, size)
    for raw in [*payloads, *(_mutated(payloads, rng) for _ in range(BATCH))]:  # so that first imports are not counted
        _absorb(state, raw, payloads[0], Fuzzed())
    limit = SPARE_NBYTES + MOST * (max(map(len, payloads)) + 4 * size)
    for first in range(0, count, BATCH):
        batch = [_mutated(payloads, rng) for _ in range(min(BATCH, count - first))]
        traced = first // BATCH % TRACED == 0
        if traced:
            tracemalloc.start()
        try:
            for raw in batch:
                _absorb(state, raw, payloads[rng.randrange(len(payloads))], found)
            if traced:
                found.peak_nbytes = max(found.peak_nbytes, tracemalloc.get_traced_memory()[1])
        finally:
            if traced:
                tracemalloc.stop()
        assert found.peak_nbytes <= limit, f"{found.peak_nbytes} bytes were allocated at a time; at most {limit} should"
    return found


def _absorb(state: State, raw: bytes, other: bytes, found: Fuzzed) -> None:
    try:
        Dense().absorb(state, raw)
    except MalformedMessage as error:
        found.refused += 1
        found.reasons.add(str(error)[:20])
        assert not state.b.any(), f"a refused payload changed the weights: {raw[:64].hex()}"
        return
    found.taken += 1
    assert np.isfinite(state.b).all(), f"not finite: {raw[:64].hex()}"
    assert state.w.tobytes() == state.b.tobytes(), "w and b do not move together, or a refused payload changed w"
    state.b.fill(0.0)
    state.w.fill(0.0)
    if found.taken % MERGED == 0:
        validate(merge([raw, other], state.size), state.size)


def _mutated(payloads: Sequence[bytes], rng: random.Random) -> bytes:
    raw = bytearray(payloads[rng.randrange(len(payloads))])
    for _ in range(1 if rng.random() < 0.7 else rng.randrange(2, 4)):
        rng.choice(MUTATIONS)(raw, payloads, rng)
    return bytes(raw)


def _offset(raw: bytearray, rng: random.Random) -> int:
    """Return an offset: anywhere, but more often in the header or where the body begins."""
    return rng.randrange(min(len(raw), HEADER.size + 16) if rng.random() < 0.3 else len(raw))


def _flip(raw: bytearray, payloads: Sequence[bytes], rng: random.Random) -> None:
    if raw:
        raw[_offset(raw, rng)] ^= 1 << rng.randrange(8)


def _edit(raw: bytearray, payloads: Sequence[bytes], rng: random.Random) -> None:
    if raw:
        raw[_offset(raw, rng)] = rng.randrange(256)


def _edit_number(raw: bytearray, payloads: Sequence[bytes], rng: random.Random) -> None:
    """Set a number of the body to the largest, the smallest, infinity or NaN."""
    if len(raw) >= HEADER.size + 4:
        offset = HEADER.size + rng.randrange((len(raw) - HEADER.size) // 4) * 4
        struct.pack_into("<I", raw, offset, rng.choice(NUMBERS))


def _edit_field(raw: bytearray, payloads: Sequence[bytes], rng: random.Random) -> None:
    offset, form, values = FIELDS[rng.choice(list(FIELDS))]
    if len(raw) >= HEADER.size:
        struct.pack_into(form, raw, offset, rng.choice(values))


def _swap_kind(raw: bytearray, payloads: Sequence[bytes], rng: random.Random) -> None:
    if len(raw) >= HEADER.size:
        kind = rng.choice(list(Kind))
        raw[0] = kind
        if rng.random() < 0.5:  # with a fitting quantum, so that it is not refused for that alone
            raw[4:8] = struct.pack("<f", rng.choice((0.0, 0.5)))


def _cut(raw: bytearray, payloads: Sequence[bytes], rng: random.Random) -> None:
    if raw:
        del raw[rng.randrange(len(raw)) if rng.random() < 0.5 else -rng.randrange(1, 9) :]


def _extend(raw: bytearray, payloads: Sequence[bytes], rng: random.Random) -> None:
    raw += rng.randbytes(rng.randrange(1, 65)) if rng.random() < 0.5 else bytes(rng.randrange(1, 65))


def _splice(raw: bytearray, payloads: Sequence[bytes], rng: random.Random) -> None:
    """Join the beginning of one payload and the end of another."""
    other = payloads[rng.randrange(len(payloads))]
    here = rng.choice((HEADER.size, rng.randrange(len(raw) + 1)))
    there = rng.choice((min(here, len(other)), rng.randrange(len(other) + 1)))
    raw[here:] = other[there:]


def _fill(raw: bytearray, payloads: Sequence[bytes], rng: random.Random) -> None:
    """Write a run of ones, or of zeros."""
    if raw:
        start = _offset(raw, rng)
        stop = min(len(raw), start + rng.randrange(1, 33))
        raw[start:stop] = bytes([rng.choice((0, 255))]) * (stop - start)


MUTATIONS: tuple[Mutation, ...] = (_flip, _edit, _edit_number, _edit_field, _swap_kind, _cut, _extend, _splice, _fill)
