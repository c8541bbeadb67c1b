"""One codec on a stream of updates: how many bits, how long, and how much of what it should say it says.

    v = what was left before + the change;    q = what is sent;    error = sum |v - q|^2 / sum |v|^2 over the turns

As one worker, so that nothing is divided among several. The first turns of a stream do not count: kernels are compiled in
them, and codecs that steer themselves find their limits; a warm-up that is set is left out. Of what the others take the
middle counts: some are interrupted.

For ``taut codecs`` and ``bench/costs.py``. The clock is handed in: the bench counts the thread's own time.
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
class Measured:
    """One codec on updates of ``elements``. ``error`` is None where there was nothing to send. Times are of one update,
    and so are ``nbytes``, on average."""

    spec: str
    elements: int
    turns: int
    nbytes: float
    encode_s: float
    decode_s: float
    error: float | None

    @property
    def bits(self) -> float:
        """Per element."""
        return 8.0 * self.nbytes / max(1, self.elements)

    @property
    def encode_ns(self) -> float:
        """Per element."""
        return 1e9 * self.encode_s / max(1, self.elements)

    @property
    def decode_ns(self) -> float:
        return 1e9 * self.decode_s / max(1, self.elements)


def pays_below(codec: Measured, dense: Measured) -> float:
    """The bits per second of a link below which an update is sooner there with the codec than as plain float32:

        rate = (bits of dense - bits of the codec) / (encode + decode of the codec - those of dense)

    Infinite where the codec is no slower to begin with; 0 where it saves nothing.

    >>> dense = Measured("dense", 1000, 1, 4000, 1e-6, 1e-6, 0.0)
    >>> pays_below(Measured("int8", 1000, 1, 1000, 3e-6, 2e-6, 0.0), dense)  # 24,000 bits in 3 microseconds
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
    seed: int = 0
    clock: Clock = field(default_factory=MonotonicClock)
    other: State | None = field(default=None, repr=False)  # who absorbs; one for several trials saves memory

    def __post_init__(self) -> None:
        self.w = self.w.copy()
        self._settled = settled(self.codec)
        self._state = self._settled.start(self.w, 1, shapes=self.shapes, seed=self.seed)
        self._other = receiver(len(self.w)) if self.other is None else self.other
        self._encode_s: list[float] = []
        self._decode_s: list[float] = []
        self._nbytes: list[int] = []
        self._left = self._wanted = 0.0

    def turn(self, change: Vector, counts: bool = True) -> None:
        """The weights move by ``change``, and the codec says so."""
        state, size = self._state, len(self.w)
        self.w += change
        before = state.b.copy() if counts else None
        begun_s = self.clock.now()
        payload = self._settled.emit(state, 0, size)
        encoded_s = self.clock.now()
        if payload is not None:
            self._settled.absorb(self._other, payload)
        absorbed_s = self.clock.now()
        if before is None:
            return
        self._encode_s.append(encoded_s - begun_s)
        self._nbytes.append(len(payload or b""))
        if payload is not None:
            self._decode_s.append(absorbed_s - encoded_s)
        left = state.r if state.r is not None else self.w - state.b
        np.subtract(state.b, before, out=before)  # what was sent; with what is left, what should have been
        self._left += _square(left)
        before += left
        self._wanted += _square(before)

    def measured(self) -> Measured:
        """Of the turns that counted, of which there must be one."""
        return Measured(
            spec(self.codec),
            len(self.w),
            len(self._nbytes),
            mean(self._nbytes),
            median(self._encode_s),
            median(self._decode_s) if self._decode_s else 0.0,
            self._left / self._wanted if self._wanted > 0.0 else None,
        )


def settled(codec: Codec) -> Codec:
    """As it goes on after it has warmed up, which may take longer than anybody measures.

    >>> spec(settled(parse("int8")))
    'int8'
    """
    if isinstance(codec, Feedback) and hasattr(codec.compressor, "warmup"):
        return replace(codec, compressor=replace(codec.compressor, warmup=0))  # type: ignore[type-var]
    return codec


def receiver(size: int) -> State:
    """Somebody who absorbs updates of any codec."""
    return parse("dense").start(np.zeros(size, np.float32), 1)


def _square(x: Vector) -> float:
    return float(np.dot(x, x))
