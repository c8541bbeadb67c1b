"""Error feedback: what a compressor leaves out waits in a residual and is sent later. No other module keeps a residual
for compressors.

    r += (w - b) / p;    q = Q(r);    send q;    r -= q;    b += q;    w = b

Without it (``keep=False``) r is empty before every update: what is left out is lost, as in the papers of unbiased
compressors.

Seide et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019, "Error feedback fixes signSGD and other
gradient compression schemes".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.codecs.codec import FLUSH_RANGE, Codec, Shapes, State, Vector, check_range, new_state, not_finite, ranges
from taut.codecs.compressor import Array, CompressedPiece, Compressor, CompressorState, in_pieces
from taut.codecs.exact_grid import Grid
from taut.codecs.info import CodecInfo
from taut.codecs.wire.merge import add_values_to
from taut.codecs.wire.payload import HEADER, Header, Kind, build, header


@dataclass(frozen=True)
class Feedback(Codec):
    """The codec that sends changes as ``compressor`` writes them. ``keep``: keep what it leaves out for later.

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

    @property
    def conserves(self) -> bool:
        return self.keep and type(self.compressor).grow is Compressor.grow

    def start(self, w: Vector, workers: int, grid: Grid | None = None, *, shapes: Shapes = (), seed: int = 0) -> State:
        state = new_state(w, workers, grid, residual=True)
        state.memory = CompressorState(len(w), tuple(shapes), seed, workers=workers)
        return state

    def emit(self, state: State, lo: int, hi: int) -> bytes | None:
        found = self.compressed(state, lo, hi)
        if found is None:
            return None
        payload = build(found[0], *found[1])
        return payload if len(payload) <= HEADER.size + 4 * (hi - lo) else _dense(payload)

    def compressed(self, state: State, lo: int, hi: int) -> tuple[Header, tuple[Array, ...]] | None:
        """Do as ``emit``, but return the payload's header and body, which may be longer than a dense one."""
        check_range(state, lo, hi)
        assert not self.whole or (lo, hi) == (0, state.size), f"{self.name} scans the whole vector"
        if lo == hi:
            return None
        step = self.compressor.piece if isinstance(state.w, np.ndarray) else 0
        step = step or hi - lo
        found = in_pieces(lambda start, stop: self._emit_piece(state, start, stop), lo, hi, step)
        state.memory.turns += 1
        sent = sum(piece.sent for piece in found)
        state.note(sent, hi - lo)
        return self.compressor.head_and_body(found, lo, hi - lo) if sent else None

    def retune(self, state: State, workers: int, staleness: float) -> None:
        """Change the share 1/p for what is accumulated from now on."""
        super().retune(state, workers, staleness)
        state.memory.workers = workers

    def flush(self, state: State) -> list[bytes]:
        """Send the change of w since the last scan, as far as the compressor sends it: once, since a second scan would
        only send earlier what belongs to later updates."""
        payloads = (self.emit(state, lo, hi) for lo, hi in ranges(state.size, state.size if self.whole else FLUSH_RANGE))
        return [payload for payload in payloads if payload is not None]

    def left(self, state: State) -> Vector | None:
        return state.r if self.keep else None

    def _emit_piece(self, state: State, lo: int, hi: int) -> CompressedPiece | None:
        """Compress and apply one piece, while it is in the processor's cache."""
        assert state.r is not None
        w, b, r, memory = state.w[lo:hi], state.b[lo:hi], state.r[lo:hi], state.memory
        compressor, kernels, share = self.compressor, state.kernels, 1.0 / state.workers
        if not self.keep:
            r *= 0.0
        if type(compressor).grow is Compressor.grow:
            piece = compressor.fused(w, b, r, share, lo, memory) if kernels.FUSES else None
            if piece is not None:
                if not _finite_body(piece):
                    raise not_finite(state.kernels.host(r), lo)
                return piece
            sound = kernels.grow(r, w, b, share)
        else:
            compressor.grow(r, kernels.take_change(w, b, share), lo, memory)
            sound = kernels.finite(r)
        if not sound:
            raise not_finite(state.kernels.host(r), lo)
        piece = compressor.compress(r, lo, memory)
        if piece is not None and not _finite_body(piece):
            raise not_finite(state.kernels.host(r), lo)
        if piece is None:
            kernels.rest(w, b)
        else:
            kernels.take(w, b, r, piece.q, piece.indices)
            compressor.sent(piece, lo, memory)
        return piece and piece.applied()


def _finite_body(piece: CompressedPiece) -> bool:
    """Return whether the body of the piece is finite. It is on the host, and short where that matters."""
    if isinstance(piece.q, np.ndarray):
        return True  # r was checked
    return all(_is_finite(part) for part in piece.body)


def _is_finite(part: Vector) -> bool:
    if isinstance(part, np.ndarray):
        return part.dtype.kind != "f" or bool(np.isfinite(part).all())
    return not part.is_floating_point() or bool(part.isfinite().all())


def _dense(payload: bytes) -> bytes:
    """Return the same update as plain float32, for a compressed body that would be longer."""
    head = header(payload)
    values = np.zeros(head.length, np.float32)
    add_values_to(values, payload, head)
    return build(Header(Kind.DENSE, 0.0, head.base, head.length, head.length), values)
