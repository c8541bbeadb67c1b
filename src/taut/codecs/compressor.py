"""The contract of a compressor: a vector in, a short body and what it stands for out.

    Q(v) is what receivers will add:      E|Q(v) - v|^2 <= error |v|^2

A compressor is a frozen record of hyper-parameters. It keeps nothing back: what a body leaves out is the business of
``feedback.py``, which makes a codec of it, or of a method that compresses differences (``choco``). What it must remember
from one update to the next (a warm start, a momentum, a count for its random numbers) is in the ``Memory``.

Vectors are float32: NumPy arrays, or torch tensors on any device; both give the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from taut.codecs.info import CodecInfo
from taut.codecs.parallel import HEAVY, over
from taut.codecs.wire.payload import Header, Kind, build

Vector = Any
Array = npt.NDArray[Any]


@dataclass
class Memory:
    """What a compressor remembers of one vector. ``size``: its elements. ``shapes``: of the tensors in it, in order
    (one flat vector where nobody said). ``seed``, ``turns``: of its random numbers; turns counts updates. ``workers``:
    how many send updates like this one. ``kept``: vectors of its own, by name."""

    size: int
    shapes: tuple[tuple[int, ...], ...] = ()
    seed: int = 0
    turns: int = 0
    workers: int = 1
    kept: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shapes = self.shapes or ((self.size,),)
        assert sum(int(np.prod(shape)) for shape in self.shapes) == self.size


@dataclass(frozen=True)
class Piece:
    """A compressed piece of a vector. ``body``: arrays in host memory, in the order of the form, to be joined with those
    of the pieces that follow. ``q``: what receivers will add, element by element, on the vector's device; None once it
    was applied. Of a sparse piece ``places`` are the elements that q belongs to (rising, relative to the piece).
    ``elements``: how many are sent, where q is gone."""

    body: tuple[Array, ...]
    q: Vector | None
    places: Vector | None = None
    elements: int = 0

    @property
    def sent(self) -> int:
        return self.elements if self.q is None else len(self.q)

    def applied(self) -> Piece:
        """The piece without what it stands for, which is as long as the vector."""
        return replace(self, q=None, places=None, elements=self.sent)


class Compressor(ABC):
    """``feeds_back``: meant to be used with error feedback (an unbiased one is not). ``whole``: it needs the whole vector
    at once, tensor by tensor. ``piece``: how many elements it compresses independently of all others (a multiple of
    64); 0 where all that are scanned belong together."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    kernels: ClassVar[tuple[str, ...]] = ()  # that it needs for NumPy vectors, as ``compilation`` finds them
    compresses_vectors: ClassVar[bool] = True  # any, for strategies that compress vectors and not updates
    feeds_back: ClassVar[bool] = True
    whole: ClassVar[bool] = False
    piece: ClassVar[int] = 0

    @property
    @abstractmethod
    def facts(self) -> CodecInfo:
        """What it says of itself."""

    @abstractmethod
    def compress(self, v: Vector, lo: int, memory: Memory) -> Piece | None:
        """Q(v) for elements ``lo..lo+len(v)-1`` of the vector. ``v`` is only read. None: nothing is worth sending."""

    def fused(self, w: Vector, b: Vector, r: Vector, share: float, lo: int, memory: Memory) -> Piece | None:
        """The whole update in one pass, where there is a kernel for it: r += (w - b) share, Q(r) moves from r to b, and
        w = b. The piece was applied then: it has no q. None: there is no such pass, and nothing was done. Where something
        is not finite, so is a number of the body. Not asked where the compressor has a ``grow`` of its own."""
        return None

    def grow(self, r: Vector, change: Vector, lo: int, memory: Memory) -> None:
        """r takes in the change, in place: r += change, unless the method says otherwise (momentum)."""
        r += change

    def sent(self, piece: Piece, lo: int, memory: Memory) -> None:  # noqa: B027
        """The piece was sent: what must be forgotten with it (factor masking)."""

    def body(self, pieces: Sequence[Piece], length: int) -> tuple[Array, ...]:
        """The pieces of one update as the arrays of one body, which are joined in this order: field by field."""
        return tuple(array for arrays in zip(*(piece.body for piece in pieces), strict=True) for array in arrays)

    @property
    def votes(self) -> bool:
        """In synchronous rounds every worker's body is summed with a quantum of 1, and ``conclude`` is called."""
        return False

    def conclude(self, total: Vector, scale: float) -> None:  # noqa: B027
        """In synchronous rounds: what becomes of the sum of all workers' Q, in place (a vote). Nothing, for most.
        ``scale``: the mean of the workers' quanta, weighted as they are."""

    def payload(self, pieces: Sequence[Piece], lo: int, length: int) -> bytes:
        """The update on the wire."""
        body = self.body(pieces, length)
        return build(Header(self.kind, self.quantum(body), lo, length, self.count(pieces, length)), *body)

    def quantum(self, body: Sequence[Array]) -> float:
        """The header's; 0 for forms that have none."""
        return 0.0

    def count(self, pieces: Sequence[Piece], length: int) -> int:
        """The header's: elements that are sent."""
        return sum(piece.sent for piece in pieces)

    def encode(self, v: Vector, memory: Memory) -> bytes | None:
        """All of ``v`` as a payload, without feedback, for methods that compress differences.

        >>> from taut.codecs import TopK, expand
        >>> v = np.array([0.0, 3.0, -1.0, 2.0], np.float32)
        >>> expand(TopK(0.5).encode(v, Memory(4)), 4).tolist()
        [0.0, 3.0, 0.0, 2.0]
        """
        step = (self.piece if isinstance(v, np.ndarray) else 0) or len(v)
        found = in_pieces(lambda start, stop: self.compress(v[start:stop], start, memory), 0, len(v), step)
        memory.turns += 1
        return self.payload(found, 0, len(v)) if found else None


def in_pieces(one: Callable[[int, int], Piece | None], lo: int, hi: int, step: int) -> list[Piece]:
    """What ``one(start, stop)`` makes of each piece of ``step`` elements, in order: on several threads where there are
    many, since a piece does not know of the others.

    >>> [piece.elements for piece in in_pieces(lambda start, stop: Piece((), None, elements=stop - start), 0, 5, 2)]
    [2, 2, 1]
    """

    def some(start: int, stop: int) -> list[Piece | None]:
        return [one(first, min(first + step, stop)) for first in range(start, stop, step)]

    return [piece for pieces in over(some, lo, hi, step, HEAVY) for piece in pieces if piece is not None]
