"""Conformance of a codec: replicas in one process, seeded steps, late and disordered arrivals, and the laws.

    from taut.testing import check_codec
    check_codec(MyCodec())
    check_codec(parse(MyCompressor()))        # with error feedback, and what ``check_compressor`` asks for

Each law is a function of its own, so that a failure says which. All of them raise ``AssertionError``.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from taut.codecs import Codec, Feedback, State, expand, merge, parse, snap, spec, validate
from taut.codecs.wire.payload import HEADER, Kind
from taut.errors import MalformedMessage
from taut.testing.checks.compressor_check import check_compressor

F32 = npt.NDArray[np.float32]


@dataclass
class _Replica:
    """One worker of the scenario: its live weights, its state, what it sent and what it has yet to take in."""

    w: F32
    state: State
    sent: list[bytes]
    inbox: list[bytes]


def check_codec(codec: Codec, *, size: int = 1000, workers: int = 3, steps: int = 12, seed: int = 0) -> None:
    """Hold a codec to the contract of ``taut.codecs.Codec``, and one that is made of a compressor to that of
    ``taut.codecs.Compressor``. Takes well under a second at the default sizes.

    >>> check_codec(parse("tether:slack=2^-7"), size=100)
    """
    check_scenario(codec, size=size, workers=workers, steps=steps, seed=seed)
    if isinstance(codec, Feedback):
        check_compressor(codec.compressor, size=size, seed=seed)


def check_scenario(codec: Codec, *, size: int = 1000, workers: int = 3, steps: int = 12, seed: int = 0) -> None:
    """Check the laws of the codec alone: what is sent adds up, whatever the order, and what is not sent waits."""
    assert parse(spec(codec)) == codec, f"{spec(codec)!r} does not read back as {codec}"
    _check_residual(codec, size, seed)
    replicas = _train(codec, size, workers, steps, np.random.default_rng(seed))
    _check_drained(codec, replicas)
    _check_merging(codec, replicas, seed)
    _check_refusal(codec, replicas[0])
    _check_joining(codec, replicas)


def _initial(size: int, seed: int) -> F32:
    weights: F32 = np.random.default_rng(seed).standard_normal(size, np.float32) * np.float32(0.1)
    return weights


def _replica(codec: Codec, w: F32, workers: int, rank: int = 0) -> _Replica:
    grid = snap(w, [len(w) // 2, len(w) - len(w) // 2])
    rows = len(w) // 16
    shapes = ((rows, 8), (len(w) - 8 * rows,)) if rows else ((len(w),),)
    return _Replica(w, codec.start(w, workers, grid, shapes=shapes, seed=rank), [], [])


def _train(codec: Codec, size: int, workers: int, steps: int, rng: np.random.Generator) -> list[_Replica]:
    """Make steps of random size; ranges are scanned in turn, arrivals come late and in any order, the number of workers
    is told anew."""
    replicas = [_replica(codec, _initial(size, 1), workers, rank) for rank in range(workers)]
    cut = 0 if codec.whole else size // 128 * 64
    for step in range(steps):
        for replica in replicas:
            replica.w += rng.standard_normal(size, np.float32) * np.float32(0.01)
            lo, hi = [(0, size), (0, cut), (cut, size)][step % 3] if cut else (0, size)
            payload = codec.emit(replica.state, lo, hi)
            assert payload is None or len(payload) <= HEADER.size + 4 * (hi - lo), "longer than the dense vector"
            _send(replica, replicas, payload)
            for _ in range(int(rng.integers(0, len(replica.inbox) + 1))):
                codec.absorb(replica.state, replica.inbox.pop(int(rng.integers(0, len(replica.inbox)))))
            if step == steps // 2:
                codec.retune(replica.state, workers + 1, 2.0)
    for replica in replicas:
        for payload in codec.flush(replica.state):
            _send(replica, replicas, payload)
    for replica in replicas:
        for index in rng.permutation(len(replica.inbox)):
            codec.absorb(replica.state, memoryview(replica.inbox[int(index)]))
        replica.inbox.clear()
    return replicas


def _send(sender: _Replica, replicas: list[_Replica], payload: bytes | None) -> None:
    if payload is None:
        return
    validate(payload, len(sender.w))
    sender.sent.append(payload)
    for other in replicas:
        if other is not sender:
            other.inbox.append(payload)


def _agree(codec: Codec, one: Any, other: Any, what: str) -> None:
    if codec.exact:
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes(), f"{what}: not equal to the last bit"
    else:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=what)


def _check_residual(codec: Codec, size: int, seed: int) -> None:
    """Check that accumulated = sent + left: bit for bit in every update of a compressor; over all of them exactly where
    sums are exact and changes are on the grid, or else within rounding."""
    if isinstance(codec, Feedback):
        _check_updates(codec, size, seed)
    rng, workers = np.random.default_rng(seed), 2
    replica = _replica(codec, np.zeros(size, np.float32), workers)
    if replica.state.r is None or not codec.conserves:
        return
    accumulated = np.zeros(size)
    for _ in range(6):
        step = rng.integers(-300, 301, size) * 2.0**-12
        replica.w += step.astype(np.float32)
        accumulated += step / workers
        codec.emit(replica.state, 0, size)
    total = codec.shared(replica.state).astype(np.float64) + replica.state.r
    tolerance = 0.0 if codec.exact else 1e-5 * float(np.abs(accumulated).max())
    np.testing.assert_allclose(total, accumulated, rtol=0.0, atol=tolerance, err_msg="accumulated = sent + left")


def _check_updates(codec: Feedback, size: int, seed: int) -> None:
    """Check that r = grow(r, change) - q, b += q and w = b, where q is what receivers read from the payload."""
    rng = np.random.default_rng(seed)
    replica = _replica(codec, _initial(size, 1), 2)
    state = replica.state
    for _ in range(4):
        replica.w += rng.standard_normal(size, np.float32) * np.float32(0.01)
        assert state.r is not None
        before, grown = state.b.copy(), state.r * np.float32(codec.keep)
        codec.compressor.grow(grown, (state.w - state.b) * np.float32(0.5), 0, deepcopy(state.memory))
        payload = codec.emit(state, 0, size)
        q = np.zeros(size, np.float32) if payload is None else expand(payload, size)
        assert (state.r == grown - q).all(), "what is left is not what was there without what receivers get"
        assert (state.b == before + q).all(), "the sender's weights are not the receivers'"
        assert state.w.tobytes() == state.b.tobytes(), "only what was sent is applied"


def _check_drained(codec: Codec, replicas: list[_Replica]) -> None:
    """Check that after a drain all replicas agree, and on the sum of the first weights and all that was sent."""
    for replica in replicas[1:]:
        _agree(codec, codec.shared(replicas[0].state), codec.shared(replica.state), "drained replicas")
    witness = _replica(codec, _initial(len(replicas[0].w), 1), len(replicas))
    for replica in replicas:
        for payload in replica.sent:
            codec.absorb(witness.state, payload)
    _agree(codec, codec.shared(witness.state), codec.shared(replicas[0].state), "sum of what was sent")
    assert any(replica.sent for replica in replicas), "nothing was ever sent"
    assert all((replica.state.words_sent > 0) == bool(replica.sent) for replica in replicas)


def _check_merging(codec: Codec, replicas: list[_Replica], seed: int) -> None:
    """Check that absorbing a merged payload is absorbing its parts; it is never larger than a dense vector."""
    size = len(replicas[0].w)
    parts = [payload for replica in replicas for payload in replica.sent]
    one, other = (_replica(codec, _initial(size, 1), len(replicas)) for _ in range(2))
    for payload in np.random.default_rng(seed).permutation(np.array(parts, object)):
        codec.absorb(one.state, payload)
    merged = merge(parts)
    assert validate(merged, size).kind in Kind
    assert len(merged) <= HEADER.size + 4 * size, f"merged payload of {len(merged)} bytes for {size} elements"
    codec.absorb(other.state, merged)
    _agree(codec, codec.shared(one.state), codec.shared(other.state), "merged payloads")


def _check_refusal(codec: Codec, replica: _Replica) -> None:
    """Check that a payload that is cut short, too long, or for another vector is refused and changes nothing."""
    before = np.array(codec.shared(replica.state))
    good = replica.sent[0]
    for bad in (b"", good[:-1], good + b"\0", bytes([99]) + good[1:], good[:1] + b"\xff" + good[2:]):
        try:
            codec.absorb(replica.state, bad)
        except MalformedMessage:
            continue
        raise AssertionError(f"a malformed payload of {len(bad)} bytes was taken in")
    assert before.tobytes() == np.asarray(codec.shared(replica.state)).tobytes(), "a refused payload changed the weights"


def _check_joining(codec: Codec, replicas: list[_Replica]) -> None:
    """Check that a joiner that adopts the shared weights has them, in b and in w."""
    donor = codec.shared(replicas[0].state)
    joiner = _replica(codec, np.zeros_like(replicas[0].w), len(replicas) + 1)
    codec.adopt(joiner.state, np.array(donor))
    assert np.asarray(codec.shared(joiner.state)).tobytes() == np.asarray(donor).tobytes(), "b of a joiner"
    assert joiner.w.tobytes() == np.asarray(donor).tobytes(), "w of a joiner"
    assert joiner.w is joiner.state.w, "the live weights must be worked on in place"
