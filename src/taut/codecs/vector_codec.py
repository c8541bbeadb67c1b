"""A codec for methods that see vectors: gradients that are summed in rounds (``sync``), or differences (``choco``).

    encode       Q(weight * v + residual), with the codec's own feedback
    difference   Q(v), without feedback: the next difference contains what was left out
    fade         a smaller residual
    total        the sum of all workers' payloads in the given order, the same bits at every worker
    residual_parts  the residual, for another worker to ``inherit``

One `VectorCodec` belongs to one worker and one vector.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from taut.codecs.codec import Codec, State, not_finite
from taut.codecs.compressor import Compressor, CompressorState
from taut.codecs.error_feedback import Feedback
from taut.codecs.host_vectors import F32, HostVectors, Vector
from taut.codecs.wire.merge import add_values_to
from taut.codecs.wire.payload import QUANTA, Bytes, Header, header
from taut.codecs.wire.residual import read_residual, residual_parts
from taut.codecs.wire.validate import validate
from taut.errors import MalformedMessage, Misuse

Written = bytes | memoryview  # a payload
PROBE_ELEMENTS = 65521  # a prime, so that the rows of a matrix do not repeat where the probe does


class VectorCodec(HostVectors):
    """Writes vectors of ``size`` elements with ``codec``, and reads those of others. ``shapes``: of the tensors in them;
    ``seed``: of random numbers, another for each worker; ``workers``: how many start together.

    >>> from taut.codecs import parse
    >>> coder, v = VectorCodec(parse("topk:density=0.25"), 4), np.array([0.0, 3.0, -1.0, 2.0], np.float32)
    >>> first, second, out = coder.encode(v), coder.encode(v), np.zeros(4, np.float32)
    >>> coder.total([first, second], [1.0, 1.0], out); out.tolist()  # the 2 waited, and went as 4
    [0.0, 3.0, 0.0, 4.0]
    """

    def __init__(
        self, codec: Codec, size: int, shapes: Sequence[tuple[int, ...]] = (), seed: int = 0, workers: int = 1
    ) -> None:
        self.codec, self.size, self.workers = codec, size, workers
        self._shapes, self._seed = tuple(shapes), seed
        self._inherited: deque[tuple[int, F32]] = deque()  # residuals of other workers, on their way into the state

    @property
    def name(self) -> str:
        return self.codec.name

    @property
    def bits(self) -> float:
        """Return the bits per element that the codec states."""
        return self.codec.facts.bits

    @property
    def error(self) -> float | None:
        """Return the stated bound of |Q(v) - v|^2 / |v|^2, if there is one."""
        return self.codec.facts.error

    @property
    def left(self) -> Vector | None:
        """Return the residual, in units of weight * v; None if the codec keeps none, or nothing was sent."""
        self._add_inherited()
        state = self.__dict__.get("_state")
        return None if state is None else self.codec.left(state)

    # ------------------------------------------------------------------------------------------------- writing

    def encode(self, v: Vector, weight: float = 1.0, tail: bytes = b"") -> Written:
        """Encode ``weight`` * v and the residual; return the payload, which is empty if nothing is worth sending, and the
        ``tail`` behind it. With a weight of 0 nothing is sent, and the residual stays. Raises ``NonFiniteUpdate``."""
        return self._joined(self._weighted(v, weight), tail)

    def _weighted(self, v: Vector, weight: float) -> Written:
        if not weight:
            return b""
        self._add_inherited()
        return self._emit(self._state, v, weight)

    def _emit(self, state: State, v: Vector, weight: float) -> Written:
        np.multiply(v, np.float32(weight), out=state.w)
        state.b[:] = 0.0
        return self.codec.emit(state, 0, self.size) or b""

    def _joined(self, payload: Written, tail: bytes) -> Written:
        return bytes(payload) + tail

    def fade(self, share: float) -> None:
        """Multiply the residual by ``share``: what was left out counts for less."""
        left = self.left
        if left is not None:
            left *= float(np.float32(share))

    def difference(self, v: F32) -> bytes:
        """Return Q(v), without feedback. Raises ``NonFiniteUpdate``, and ``Misuse`` if the codec is no compressor."""
        compressor = self._compressor
        if not np.isfinite(v).all():
            raise not_finite(v)
        return compressor.encode(v, self._memory) or b""

    def part(self, lo: int, hi: int) -> VectorCodec:
        """Return a codec for elements ``lo`` to ``hi`` - 1 alone: tensors that lie between keep their shapes."""
        shapes, at = [], 0
        for shape in self._shapes or ((self.size,),):
            size = math.prod(shape)
            inside = min(hi, at + size) - max(lo, at)
            if inside > 0:
                shapes.append(shape if inside == size else (inside,))
            at += size
        return VectorCodec(self.codec, hi - lo, shapes, self._seed, self.workers)

    # ---------------------------------------------------------------------------------------- residual handoff

    def residual_parts(self) -> Iterator[bytes]:
        """Yield the residual as dense payloads, for another worker to take over."""
        if self.left is not None:
            yield from residual_parts(self.codec, self._state)

    def inherit(self, payload: Bytes) -> None:
        """Take over another worker's residual, which is sent with the next vector. From any thread. Raises
        ``MalformedMessage``."""
        self._inherited.append(read_residual(payload, self.size))

    def _add_inherited(self) -> None:
        while self._inherited:
            self.codec.inherit(self._state, *self._inherited.popleft())

    # ------------------------------------------------------------------------------------------------- reading

    def check(self, payload: Bytes, size: int) -> None:
        """Raise ``MalformedMessage`` unless the payload is right in every byte for ``size`` elements; an empty one is."""
        if not len(payload):
            return
        head = self._validated(payload, size)
        counted = self._votes and self._compressor.kind in QUANTA  # other kinds are summed as they are, dense ones too
        if counted and head.kind is not self._compressor.kind:
            raise MalformedMessage(f"{head.kind.name} payload, where votes are {self._compressor.kind.name} payloads")

    def _validated(self, payload: Bytes, size: int) -> Header:
        return validate(payload, size)

    def add(self, payload: Bytes, x: Vector, scale: float = 1.0) -> None:
        """Add ``scale`` times the payload, which was checked, to x. The bits are the same at every worker with the same
        x."""
        if not len(payload):
            return
        head = header(payload)
        if scale == 1.0:
            add_values_to(x[head.base :], payload, head)
            return
        change = np.zeros(head.length, np.float32)
        add_values_to(change, payload, head)
        change *= np.float32(scale)
        x[head.base : head.base + head.length] += change

    def total(self, payloads: Sequence[Bytes], weights: Sequence[float], out: Vector) -> None:
        """Set ``out`` to the sum of the payloads, which were checked, in this order. If the codec votes: to the sign with
        the most ``weights`` behind it, times the sum of all magnitudes."""
        out[:] = 0.0
        scale = 0.0
        for payload, weight in zip(payloads, weights, strict=True):
            if not len(payload):
                continue
            head = header(payload)
            if self._votes:
                scale += head.quantum
                head = replace(head, quantum=float(np.float32(weight)))
            add_values_to(out[head.base :], payload, head)
        if self._votes:
            self._compressor.conclude(out, float(np.float32(scale)))

    # --------------------------------------------------------------------------------------- damping and gamma

    @cached_property
    def damping(self) -> float:
        """Return the factor with which to apply a difference: 1, but for an unbiased compressor, whose error is its
        variance, and for one that may err by more than it is given, 1 / (1 + error); so damped, it leaves less."""
        if not self._scatters:
            return 1.0
        return 1.0 / (1.0 + (self._measured if self.error is None else self.error))

    @cached_property
    def pace(self) -> float:
        """Return how far to follow the others' vectors as the codec shows them (``choco``'s gamma), above 0 and up to 1:

            min(2 delta, delta'),    |Q(v) - v|^2 <= (1 - delta) |v|^2

        delta is the stated one, delta' is measured on a vector of normal numbers, the same at every worker. For top-k the
        first counts, since differences get flat; where nothing below 1 is stated (signs, low rank), the second.

        >>> from taut.codecs import parse
        >>> VectorCodec(parse("topk:density=0.25"), 4000).pace
        0.5
        """
        facts = self.codec.facts
        if self._scatters:
            shares = [2.0 * self.damping, 1.0 / (1.0 + self._measured)]
        else:
            stated = [2.0 * (1.0 - facts.error)] if facts.error is not None and facts.error < 1.0 else []
            shares = [*stated, 1.0 - self._measured]
        return min(1.0, max(1.0 / self.size, min(shares)))

    @cached_property
    def bounded(self) -> bool:
        """Return whether a bound of what the codec leaves out is known, for every vector."""
        facts = self.codec.facts
        return facts.unbiased or (facts.error is not None and facts.error < 1.0)

    @property
    def _scatters(self) -> bool:
        """Return whether what the codec writes lies around the vector, and not short of it."""
        facts = self.codec.facts
        return facts.unbiased or (facts.error is not None and facts.error > 1.0)

    @cached_property
    def _measured(self) -> float:
        """Measure |Q(v) - v|^2 / |v|^2, once."""
        normal = np.random.default_rng(0).normal(size=min(self.size, PROBE_ELEMENTS))
        v = np.resize(normal.astype(np.float32), self.size)
        decoded = np.zeros_like(v)
        payload = self._compressor.encode(v, CompressorState(self.size, self._shapes, workers=self.workers))
        if payload is not None:
            add_values_to(decoded, payload, header(payload))
        decoded -= v
        return float(np.dot(decoded, decoded)) / max(float(np.dot(v, v)), 1e-30)

    # ---------------------------------------------------------------------------------------------------- state

    @cached_property
    def _state(self) -> State:
        """Return the codec's state, made on first use: it takes three vectors."""
        state = self.codec.start(self._zeros(), 1, shapes=self._shapes, seed=self._seed)
        if state.memory is not None:
            state.memory.workers = self.workers
        return state

    def _zeros(self) -> Vector:
        return np.zeros(self.size, np.float32)

    @cached_property
    def _memory(self) -> CompressorState:
        return CompressorState(self.size, self._shapes, self._seed, workers=self.workers)

    @property
    def _compressor(self) -> Compressor:
        if not isinstance(self.codec, Feedback):
            raise Misuse(f"codec {self.name!r} for differences", "a compressor", "try topk, int8 or sign")
        return self.codec.compressor

    @cached_property
    def _votes(self) -> bool:
        return isinstance(self.codec, Feedback) and self.codec.compressor.votes
