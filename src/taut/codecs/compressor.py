"""The contract of a compressor: a vector in; a short body and the vector that it stands for out.

    Q(v) is what receivers will add:      E|Q(v) - v|^2 <= error |v|^2

A compressor is a frozen record of hyper-parameters. It keeps nothing back: ``error_feedback.py``, which makes a codec of
a compressor, keeps what a body leaves out; so does a method that compresses differences (``choco``). Whatever a
compressor must remember from one update to the next (a warm start, a momentum, a count for its random numbers) is in the
``CompressorState``.

Vectors are float32: NumPy arrays, or torch tensors on any device; both give the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from taut.codecs.info import CodecInfo
from taut.codecs.parallel import HEAVY, run_chunks
from taut.codecs.wire.payload import Header, Kind, build

Vector = Any
Array = npt.NDArray[Any]
FEEDBACK_KERNELS = ("kernels._add_values", "feedback._grow", "feedback._take")  # of error feedback with dense pieces


@dataclass
class CompressorState:
    """A compressor's state for one vector. ``size``: its elements. ``shapes``: of the tensors in it, in order (one
    flat vector if unknown). ``seed``, ``turns``: of its random numbers; ``turns`` counts updates. ``workers``: how many
    send updates like this one. ``kept``: vectors of the compressor's own, by name."""

    size: int
    shapes: tuple[tuple[int, ...], ...] = ()
    seed: int = 0
    turns: int = 0
    workers: int = 1
    kept: dict[str, Any] = field(default_factory=dict)
    on_device: bool = field(default=False, compare=False)  # arrays of bodies may be tensors there, until the next update

    def __post_init__(self) -> None:
        self.shapes = self.shapes or ((self.size,),)
        assert sum(int(np.prod(shape)) for shape in self.shapes) == self.size


@dataclass(frozen=True)
class CompressedPiece:
    """A compressed piece of a vector. ``body``: arrays in host memory, in the order of the layout, to be joined with
    those of the pieces that follow. ``q``: what receivers will add, element by element, on the vector's device; None once
    it was applied. ``indices``: of a sparse piece, the elements that q belongs to (rising, relative to the piece).
    ``elements``: how many are sent, if q is None."""

    body: tuple[Array, ...]
    q: Vector | None
    indices: Vector | None = None
    elements: int = 0

    @property
    def sent(self) -> int:
        return self.elements if self.q is None else len(self.q)

    def applied(self) -> CompressedPiece:
        """Return the piece without q, which is as long as the vector."""
        return replace(self, q=None, indices=None, elements=self.sent)


class Compressor(ABC):
    """``feeds_back``: meant to be used with error feedback (an unbiased compressor is not). ``whole``: it needs the whole
    vector at once, tensor by tensor. ``piece``: how many elements it compresses independently of all others (a multiple
    of 64); 0 if all scanned elements belong together."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    kernels: ClassVar[tuple[str, ...]] = ()  # kernels for NumPy vectors, ``module.function`` of kernels/cpu
    # Why a strategy that compresses vectors cannot use it; why one cannot that sends what is left out later.
    not_for_vectors: ClassVar[str] = ""
    not_for_differences: ClassVar[str] = ""
    fine: ClassVar[bool] = False  # of any vector it leaves hardly anything out, less than a hundredth of |v|^2
    feeds_back: ClassVar[bool] = True
    whole: ClassVar[bool] = False
    piece: ClassVar[int] = 0

    @property
    @abstractmethod
    def facts(self) -> CodecInfo:
        """Return the compressor's description: bits, error bound, paper."""

    @abstractmethod
    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        """Compress elements ``lo..lo+len(v)-1`` of the vector; ``v`` is only read. Return None if nothing is worth
        sending."""

    def fused(
        self, w: Vector, b: Vector, r: Vector, share: float, lo: int, memory: CompressorState
    ) -> CompressedPiece | None:
        """Do the whole update in one pass, if there is a kernel for it: r += (w - b) share, Q(r) moves from r to b, and w
        = b. The piece has no q then, since it was applied. Return None, having done nothing, if there is no such kernel.
        If an element is not finite, a number of the body is not finite either. Not called if the compressor has a
        ``grow`` of its own."""
        return None

    def grow(self, r: Vector, change: Vector, lo: int, memory: CompressorState) -> None:
        """Add the change to the residual r in place: r += change, unless the method says otherwise (momentum)."""
        r += change

    def sent(self, piece: CompressedPiece, lo: int, memory: CompressorState) -> None:  # noqa: B027
        """Forget what must be forgotten once the piece was sent (factor masking)."""

    def body(self, pieces: Sequence[CompressedPiece], length: int) -> tuple[Array, ...]:
        """Join the pieces of one update field by field; return the arrays of its body in order."""
        return tuple(array for arrays in zip(*(piece.body for piece in pieces), strict=True) for array in arrays)

    @property
    def votes(self) -> bool:
        """Return whether synchronous rounds sum every worker's body with a quantum of 1, and then call ``conclude``."""
        return False

    def conclude(self, total: Vector, scale: float) -> None:  # noqa: B027
        """Change the sum of all workers' Q in place, in synchronous rounds (a vote); most compressors leave it as it is.
        ``scale``: the mean of the workers' quanta, weighted as they are."""

    def head_and_body(self, pieces: Sequence[CompressedPiece], lo: int, length: int) -> tuple[Header, tuple[Array, ...]]:
        """Return the header and the body of an update's payload."""
        body = self.body(pieces, length)
        return Header(self.kind, self.quantum(body), lo, length, self.count(pieces, length)), body

    @final
    def payload(self, pieces: Sequence[CompressedPiece], lo: int, length: int) -> bytes:
        """Return the payload of an update."""
        head, body = self.head_and_body(pieces, lo, length)
        return build(head, *body)

    def quantum(self, body: Sequence[Array]) -> float:
        """Return the header's quantum; 0 for layouts that have none."""
        return 0.0

    def count(self, pieces: Sequence[CompressedPiece], length: int) -> int:
        """Return the header's count: elements that are sent."""
        return sum(piece.sent for piece in pieces)

    def encode(self, v: Vector, memory: CompressorState) -> bytes | None:
        """Compress all of ``v`` into a payload, without feedback, for methods that compress differences.

        >>> from taut.codecs import TopK, expand
        >>> v = np.array([0.0, 3.0, -1.0, 2.0], np.float32)
        >>> expand(TopK(0.5).encode(v, CompressorState(4)), 4).tolist()
        [0.0, 3.0, 0.0, 2.0]
        """
        step = (self.piece if isinstance(v, np.ndarray) else 0) or len(v)
        found = in_pieces(lambda start, stop: self.compress(v[start:stop], start, memory), 0, len(v), step)
        memory.turns += 1
        return self.payload(found, 0, len(v)) if found else None


def in_pieces(one: Callable[[int, int], CompressedPiece | None], lo: int, hi: int, step: int) -> list[CompressedPiece]:
    """Call ``one(start, stop)`` for each piece of ``step`` elements; return the pieces that are to be sent, in order."""
    return [piece for piece in run_chunks(one, lo, hi, step, HEAVY) if piece is not None]
