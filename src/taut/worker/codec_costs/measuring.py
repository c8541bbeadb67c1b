"""One codec on a stream of updates: how many bits, how long, and how large its error is.

    v = what was left before + the change;    q = what is sent;    error = sum |v - q|^2 / sum |v|^2 over the turns

As one worker, so that nothing is divided among several. The first turns of a stream do not count: kernels are compiled in
them, and codecs that steer themselves find their limits; a codec's warm-up is turned off. The median of the others
counts, since some are interrupted.

For ``taut codecs`` and ``bench/costs.py``. The clock is an argument: the bench counts the thread's own time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median

import numpy as np

from taut.codecs import Codec, Feedback, State, parse, spec
from taut.core.clock import Clock, MonotonicClock
from taut.worker.standalone.worker import Vector


@dataclass(frozen=True)
class MeasuredCodec:
    """One codec on updates of ``elements``. ``error``: None if nothing was sent. Times and ``nbytes`` are means."""

    spec: str
    elements: int
    turns: int
    nbytes: float
    encode_s: float
    decode_s: float
    error: float | None

    @property
    def bits(self) -> float:
        return 8.0 * self.nbytes / max(1, self.elements)

    @property
    def encode_ns(self) -> float:
        return 1e9 * self.encode_s / max(1, self.elements)

    @property
    def decode_ns(self) -> float:
        return 1e9 * self.decode_s / max(1, self.elements)


def pays_below(codec: MeasuredCodec, dense: MeasuredCodec) -> float:
    """Return the bits per second of a link below which an update arrives sooner with the codec than as plain float32:

        rate = (bits of dense - bits of the codec) / (encode + decode of the codec - those of dense)

    Infinite if the codec is no slower to begin with; 0 if it saves nothing.

    >>> dense = MeasuredCodec("dense", 1000, 1, 4000, 1e-6, 1e-6, 0.0)
    >>> pays_below(MeasuredCodec("int8", 1000, 1, 1000, 3e-6, 2e-6, 0.0), dense)  # 24,000 bits in 3 microseconds
    8000000000.0
    """
    saved = 8.0 * (dense.nbytes - codec.nbytes)
    longer_s = codec.encode_s + codec.decode_s - dense.encode_s - dense.decode_s
    if saved <= 0.0:
        return 0.0
    return saved / longer_s if longer_s > 0.0 else float("inf")


@dataclass
class Trial:
    """``codec`` on weights that begin as a copy of ``w``; ``turn`` is one step of them.

    >>> trial = Trial(parse("dense"), np.zeros(256, np.float32))
    >>> for step in range(4):
    ...     trial.turn(np.ones(256, np.float32), counts=step >= 2)
    >>> found = trial.measured()
    >>> found.turns, found.bits, found.error  # 28 bytes of header with 256 elements of 4
    (2, 32.875, 0.0)
    """

    codec: Codec
    w: Vector
    shapes: Sequence[tuple[int, ...]] = ()
    clock: Clock = field(default_factory=MonotonicClock)
    other: State | None = field(default=None, repr=False)  # the receiver; sharing one among trials saves memory

    def __post_init__(self) -> None:
        self.w = self.w.copy()
        self._codec = without_warmup(self.codec)
        self._state = self._codec.start(self.w, 1, shapes=self.shapes)
        self._other = receiver(len(self.w)) if self.other is None else self.other
        self._encode_s: list[float] = []
        self._decode_s: list[float] = []
        self._nbytes: list[int] = []
        self._left = self._wanted = 0.0

    def turn(self, change: Vector, counts: bool = True) -> None:
        """Move the weights by ``change``, and encode that."""
        state, size = self._state, len(self.w)
        self.w += change
        before = state.b.copy() if counts else None
        begun_s = self.clock.now()
        payload = self._codec.emit(state, 0, size)
        encoded_s = self.clock.now()
        if payload is not None:
            self._codec.absorb(self._other, payload)
        absorbed_s = self.clock.now()
        if before is None:
            return
        self._encode_s.append(encoded_s - begun_s)
        self._nbytes.append(len(payload or b""))
        if payload is not None:
            self._decode_s.append(absorbed_s - encoded_s)
        left = state.r if state.r is not None else self.w - state.b
        np.subtract(state.b, before, out=before)  # what was sent; together with what is left, what should have been
        self._left += _square(left)
        before += left
        self._wanted += _square(before)

    def measured(self) -> MeasuredCodec:
        """Return the figures of the turns that counted, of which there must be one."""
        return MeasuredCodec(
            spec(self.codec),
            len(self.w),
            len(self._nbytes),
            mean(self._nbytes),
            median(self._encode_s),
            median(self._decode_s) if self._decode_s else 0.0,
            self._left / self._wanted if self._wanted > 0.0 else None,
        )


def without_warmup(codec: Codec) -> Codec:
    """Return the codec without its warm-up, which may take longer than a measurement.

    >>> spec(without_warmup(parse("int8")))
    'int8'
    """
    if isinstance(codec, Feedback) and hasattr(codec.compressor, "warmup"):
        return replace(codec, compressor=replace(codec.compressor, warmup=0))  # type: ignore[type-var]
    return codec


def receiver(size: int) -> State:
    """Return a state that absorbs updates of any codec."""
    return parse("dense").start(np.zeros(size, np.float32), 1)


def _square(x: Vector) -> float:
    return float(np.dot(x, x))
