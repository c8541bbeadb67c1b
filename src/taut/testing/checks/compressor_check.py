"""Conformance of a compressor: its statements hold, on vectors of many sorts, and it gives the same bytes again.

    from taut.testing import check_compressor
    check_compressor(MyCompressor())

Each law is a function of its own, so that a failure says which. All of them raise ``AssertionError``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from taut.codecs import Compressor, CompressorState, expand, validate
from taut.codecs.wire.payload import HEADER, Kind

F32 = npt.NDArray[np.float32]

LATE = 1 << 20  # updates after which every warm-up is over
FEW = 3  # updates in a row that are looked at
TURNS = 24  # the same, where they are thrown with dice and a mean is taken
MANY = 400  # the same, to see a bias
DEVIATIONS = 5.0
ROUNDING = 1e-5  # of |v|^2: what float32 may add to a bound
BITS_SIZE = 100_000


def check_compressor(compressor: Compressor, *, size: int = 1000, seed: int = 0) -> None:
    """Hold a compressor to the contract of ``taut.codecs.Compressor``.

    >>> from taut.codecs import TopK
    >>> check_compressor(TopK(0.1), size=100)
    """
    dice = throws_dice(compressor)
    for name, v in vectors(size, seed):
        check_error(compressor, v, name, dice)
    v = np.random.default_rng(seed).standard_normal(size, np.float32)
    _check_bits(compressor, seed)
    _check_again(compressor, v, dice)
    _check_pieces(compressor, v)
    _check_devices(compressor, v)
    if compressor.facts.unbiased:
        _check_mean(compressor, v[:256])


def vectors(size: int, seed: int) -> Iterator[tuple[str, F32]]:
    """Return vectors on which bounds are tried, by name: random, heavy-tailed, sparse, the worst for one method or
    another."""
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal(size, np.float32)
    one = np.zeros(size, np.float32)
    one[size // 2] = -3.0
    small = np.full(size, 1e-3, np.float32)
    small[0] = 1.0
    indices = np.arange(size)
    yield "normal", normal
    yield "heavy-tailed", rng.standard_t(1.5, size).astype(np.float32)
    yield "sparse", np.where(rng.random(size) < 0.02, normal, np.float32(0.0))
    yield "one element", one
    yield "equal elements", np.full(size, 0.1, np.float32)
    yield "one large and many small", small
    yield "signs in turn", np.where(indices % 2, -1.0, 1.0).astype(np.float32)
    yield "all magnitudes", np.exp2(-20.0 * indices / size).astype(np.float32)
    yield "halves of a level", ((indices % 127 + 0.5) / 127).astype(np.float32)


def throws_dice(compressor: Compressor) -> bool:
    """Whether the seed makes a difference."""
    v = np.random.default_rng(0).standard_normal(64, np.float32)
    return compressor.encode(v, _memory(v, 1)) != compressor.encode(v, _memory(v, 2))


def check_error(compressor: Compressor, v: F32, name: str = "a vector", dice: bool = False) -> None:
    """Check that |Q(v) - v|^2 is within the stated bound in every update; with dice, the mean of some of them within a
    tenth more and 5 of its deviations."""
    error = compressor.facts.error
    if error is None:
        return
    memory = _memory(v)
    norm = float(np.dot(v, v.astype(np.float64)))
    turns = TURNS if dice else FEW
    found = [_square(_decoded(compressor, v, memory) - v) / norm if norm else 0.0 for _ in range(turns)]
    noise = 0.1 * error + DEVIATIONS * float(np.std(found)) / math.sqrt(turns) if dice else 0.0
    mean = float(np.mean(found)) if dice else max(found)
    assert mean <= error + noise + ROUNDING, f"{name}: |Q(v) - v|^2 = {mean:g} |v|^2, stated: at most {error:g}"


def _check_bits(compressor: Compressor, seed: int) -> None:
    """Check that the stated bits per element are those of a payload, within a fifth. (Matrices have a rate of their
    shape.)"""
    if compressor.whole:
        return
    v = np.random.default_rng(seed).standard_normal(BITS_SIZE, np.float32)
    payload = compressor.encode(v, _memory(v))
    assert payload is not None
    bits, stated = 8.0 * (len(payload) - HEADER.size) / BITS_SIZE, compressor.facts.bits
    assert 0.8 * stated <= bits <= 1.2 * stated, f"{bits:g} bits per element, stated: {stated:g}"


def _check_again(compressor: Compressor, v: F32, dice: bool) -> None:
    """Check that the same seed and turn give the same bytes; where the seed matters, so does the turn. v is only read."""
    before = v.tobytes()
    first, again = (compressor.encode(v, _memory(v)) for _ in range(2))
    assert first == again, "another payload for the same vector, seed and turn"
    assert v.tobytes() == before, "the vector was changed"
    if dice and len(v) >= 64:
        assert compressor.encode(v, _memory(v, 1, LATE + 1)) != first, "the same dice in the next update"
    assert dice or not (compressor.facts.unbiased and compressor.facts.error), "unbiased, and without dice"


def _check_pieces(compressor: Compressor, v: F32) -> None:
    """Check that q is, bit for bit, what receivers read from the payload."""
    piece = compressor.compress(v, 0, _memory(v))
    assert piece is not None
    payload = compressor.payload([piece], 0, len(v))
    assert validate(payload, len(v)).kind is compressor.kind, "the payload is of another kind than stated"
    assert expand(payload, len(v)).tobytes() == _spread(piece, len(v)).tobytes(), "q is not what receivers get"


def _check_devices(compressor: Compressor, v: F32) -> None:
    """Check that a torch tensor gives the same payload as the NumPy array; of low rank, whose factors are a library's
    matrix products, the same within rounding."""
    import torch

    tensor = torch.from_numpy(v.copy())
    ours, theirs = compressor.encode(v, _memory(v)), compressor.encode(tensor, _memory(v))
    assert ours is not None and theirs is not None
    if compressor.kind is Kind.LOWRANK:
        np.testing.assert_allclose(expand(theirs, len(v)), expand(ours, len(v)), rtol=1e-3, atol=1e-4)
    else:
        assert ours == theirs, "NumPy and torch give different payloads"
    piece = compressor.compress(tensor, 0, _memory(v))
    assert piece is not None
    payload = compressor.payload([piece], 0, len(v))
    q = _spread(piece, len(v))
    assert expand(payload, len(v)).tobytes() == q.tobytes(), "q of a torch tensor is not what receivers get"


def _check_mean(compressor: Compressor, v: F32) -> None:
    """Check that the mean of many updates comes as near to v as their spread lets it."""
    memory = _memory(v)
    found = np.array([_decoded(compressor, v, memory) for _ in range(MANY)], np.float64)
    spread = float(found.var(0, ddof=1).sum()) / MANY
    distance = _square(found.mean(0) - v)
    told = f"biased: |mean - v|^2 is {distance / spread:.2f} of its variance"
    assert distance <= 1.7 * spread + 1e-9 * _square(v), told


def _memory(v: Any, seed: int = 1, turns: int = LATE) -> CompressorState:
    rows = len(v) // 16
    return CompressorState(len(v), ((rows, 8), (len(v) - 8 * rows,)) if rows else (), seed, turns)


def _decoded(compressor: Compressor, v: F32, memory: CompressorState) -> F32:
    payload = compressor.encode(v, memory)
    return np.zeros_like(v) if payload is None else expand(payload, len(v))


def _spread(piece: Any, size: int) -> F32:
    q, indices = (None if part is None else np.asarray(part) for part in (piece.q, piece.indices))
    assert q is not None
    if indices is None:
        return q
    values = np.zeros(size, np.float32)
    values[indices] = q
    return values


def _square(v: Any) -> float:
    return float(np.square(v, dtype=np.float64).sum())
