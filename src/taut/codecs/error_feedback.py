"""Error feedback: what a compressor leaves out is not lost, it waits in a residual. The one place where that lives.

    r += (w - b) / p;    q = Q(r);    send q;    r -= q;    b += q;    w = b

Without it (``keep=False``) r is empty before every update: what is left out is lost, as in the papers of unbiased
compressors.

Seide et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019, "Error feedback fixes signSGD and other
gradient compression schemes".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.codecs.codec import Codec, State, Vector, arithmetic, check_range, check_workers, new_state
from taut.codecs.compressor import Compressor, Memory, Piece, in_pieces
from taut.codecs.exact_grid import Grid
from taut.codecs.info import CodecInfo
from taut.codecs.wire.merge import add_values_to
from taut.codecs.wire.payload import HEADER, Header, Kind, build, header
from taut.errors import NonFiniteUpdate

FLUSH_RANGE = 2**30


@dataclass(frozen=True)
class Feedback(Codec):
    """The codec that sends what ``compressor`` makes of the changes. ``keep``: what it leaves out is kept for later.

    Extra memory: b, r and, while it is made, the payload. Sums round, so replicas may differ in the last bits.

    >>> from taut.codecs import TopK
    >>> codec, w = Feedback(TopK(0.25)), np.zeros(4, np.float32)
    >>> state = codec.start(w, workers=1)
    >>> w += np.array([0.0, 3.0, -1.0, 2.0], np.float32)
    >>> payload = codec.emit(state, 0, 4)
    >>> codec.shared(state).tolist(), state.r.tolist()
    ([0.0, 3.0, 0.0, 0.0], [0.0, 0.0, -1.0, 2.0])
    """

    exact = False

    compressor: Compressor
    keep: bool = True

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.compressor.name

    @property
    def whole(self) -> bool:  # type: ignore[override]
        return self.compressor.whole

    @property
    def kernels(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.compressor.kernels

    @property
    def facts(self) -> CodecInfo:
        return self.compressor.facts

    def start(
        self,
        w: Vector,
        workers: int,
        grid: Grid | None = None,
        *,
        shapes: Sequence[tuple[int, ...]] = (),
        seed: int = 0,
    ) -> State:
        state = new_state(w, workers, grid, residual=True)
        state.memory = Memory(len(w), tuple(shapes), seed, workers=workers)
        return state

    def emit(self, state: State, lo: int, hi: int) -> bytes | None:
        check_range(state, lo, hi)
        assert not self.whole or (lo, hi) == (0, state.size), f"{self.name} scans the whole vector"
        if lo == hi:
            return None
        step = self.compressor.piece if isinstance(state.w, np.ndarray) else 0
        step = step or hi - lo
        found = in_pieces(lambda start, stop: self._one(state, start, stop), lo, hi, step)
        state.memory.turns += 1
        sent = sum(piece.sent for piece in found)
        state.note(sent, hi - lo)
        if not sent:
            return None
        payload = self.compressor.payload(found, lo, hi - lo)
        return payload if len(payload) <= HEADER.size + 4 * (hi - lo) else _dense(payload)

    def retune(self, state: State, workers: int, staleness: float) -> None:
        """The share 1/p changes for what is accumulated from now on."""
        check_workers(workers)
        state.workers, state.staleness = workers, staleness
        state.memory.workers = workers

    def flush(self, state: State) -> list[bytes]:
        """What w moved since the last scan, as far as the compressor sends it: once, since what is left then is what it
        would have sent later."""
        step = state.size if self.whole else FLUSH_RANGE
        ranges = ((lo, min(lo + step, state.size)) for lo in range(0, state.size, step))
        payloads = (self.emit(state, lo, hi) for lo, hi in ranges)
        return [payload for payload in payloads if payload is not None]

    def left(self, state: State) -> Vector | None:
        return state.r if self.keep else None

    def _one(self, state: State, lo: int, hi: int) -> Piece | None:
        """One piece, while it is in the processor's cache."""
        assert state.r is not None
        w, b, r, memory = state.w[lo:hi], state.b[lo:hi], state.r[lo:hi], state.memory
        compressor, kernels, share = self.compressor, arithmetic(w), 1.0 / state.workers
        if not self.keep:
            r *= 0.0
        if type(compressor).grow is Compressor.grow:
            piece = compressor.fused(w, b, r, share, lo, memory) if getattr(state.kernels, "FUSES", False) else None
            if piece is not None:
                if not _finite_body(piece):
                    raise _not_finite(r, lo)
                return piece
            sound = kernels.grow(r, w, b, share)
        else:
            compressor.grow(r, kernels.change(w, b, share), lo, memory)
            sound = kernels.finite(r)
        if not sound:
            raise _not_finite(r, lo)
        piece = compressor.compress(r, lo, memory)
        if piece is not None and not _finite_body(piece):
            raise _not_finite(r, lo)
        if piece is None:
            kernels.rest(w, b)
        else:
            kernels.take(w, b, r, piece.q, piece.places)
            compressor.sent(piece, lo, memory)
        return piece and piece.applied()


def _finite_body(piece: Piece) -> bool:
    """What is sent. On the host, and short where that matters."""
    if isinstance(piece.q, np.ndarray):
        return True  # r was looked at
    return all(np.isfinite(part).all() for part in piece.body if part.dtype.kind == "f")


def _not_finite(r: Vector, lo: int) -> NonFiniteUpdate:
    bad = np.flatnonzero(~np.isfinite(_host(r)))
    element = lo + int(bad[0]) if bad.size else lo
    return NonFiniteUpdate(f"element {element} of the update is NaN or infinite: nothing of it was sent", element)


def _dense(payload: bytes) -> bytes:
    """The same update as plain float32, where the compressed form would be the longer one."""
    head = header(payload)
    values = np.zeros(head.length, np.float32)
    add_values_to(values, payload, head)
    return build(Header(Kind.DENSE, 0.0, head.base, head.length, head.length), values)


def _host(vector: Any) -> Any:
    return vector if isinstance(vector, np.ndarray) else vector.cpu().numpy()
