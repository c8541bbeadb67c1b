"""The cost of each codec on this machine and this model: it is run on a copy of the weights that follows the real ones.

    encode = seconds of emit / elements;  absorb = seconds of absorb / bytes;  bits = 8 * bytes / elements

Bits are those of one step. As in a real worker (``worker/model/replica.py``), if encoding would take more than 2% of a
step only a fragment is encoded after each. Only the later half of the steps counts: kernels are compiled in the first,
and codecs find their limits in those that follow; a codec's warm-up is turned off. The median of their times counts,
since some are interrupted. Codecs that see matrices see a square one here: the copy is a sample.

For ``taut probe``, whose method (``strategies/probing/probe_method.py``) decides when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

import numpy as np

from taut.codecs import parse
from taut.core.clock import Clock, MonotonicClock
from taut.strategies.probing.probe_state import CodecFigures
from taut.worker.codec_costs.measuring import without_warmup
from taut.worker.model.fragments import fragment, fragments
from taut.worker.standalone.worker import Vector

SAMPLE_ELEMENTS = 1 << 21  # of larger models: more than the processor's caches, and little memory
CHUNK_ELEMENTS = 1 << 16
CHOOSE_STEPS = 16  # after which the number of fragments is chosen


def sample(x: Vector) -> Vector:
    """Return a copy of x or, if that is large, of equal chunks spread evenly over it, since layers differ.

    >>> len(sample(np.zeros(1000, np.float32))), len(sample(np.zeros(5_000_000, np.float32)))
    (1000, 2097152)
    """
    if len(x) <= SAMPLE_ELEMENTS:
        return x.copy()
    chunks = SAMPLE_ELEMENTS // CHUNK_ELEMENTS
    starts = [(len(x) - CHUNK_ELEMENTS) * chunk // (chunks - 1) for chunk in range(chunks)]
    return np.concatenate([x[start : start + CHUNK_ELEMENTS] for start in starts])


@dataclass
class ShadowCodec:
    """One codec on a copy of the weights. ``follow`` after each real step; nothing of the worker's is touched.

    >>> x = np.zeros(256, np.float32)
    >>> shadow = ShadowCodec("dense", x, workers=2)
    >>> for step in range(4):
    ...     x += 1.0; shadow.follow(x)
    >>> shadow.figures().bits_per_element  # 28 bytes of header with 256 elements of 4
    32.875
    """

    name: str
    x: Vector
    workers: int
    step_s: float = 1.0  # of the real ones
    clock: Clock = field(default_factory=MonotonicClock)
    encode_s: list[float] = field(default_factory=list)  # per element
    absorb_s: list[float] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    _parts: tuple[Any, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        codec = without_warmup(parse(self.name))
        self._size = len(self.x)
        self.fragments = 1
        self.x = sample(self.x)  # as it was after the last step
        mine, theirs = self.x.copy(), self.x.copy()
        ours, other = (codec.start(weights, max(2, self.workers)) for weights in (mine, theirs))
        codec.retune(ours, max(2, self.workers), 1.0)
        self._parts = (codec, mine, ours, other)

    def follow(self, x: Vector) -> None:
        """Repeat the worker's step on the copy, and encode what the codec would have sent."""
        codec, mine, ours, other = self._parts
        now = sample(x)
        mine += now - self.x
        self.x = now
        turn = len(self.nbytes)
        if turn == CHOOSE_STEPS and not codec.whole:
            self.fragments = fragments(median(self.encode_s[1:]) * self._size, self._size, self.step_s)
        lo, hi = fragment(turn % self.fragments, self.fragments, len(mine))
        begun_s = self.clock.now()
        payload = codec.emit(ours, lo, hi)
        encoded_s = self.clock.now()
        if payload is not None:
            codec.absorb(other, payload)
        absorbed_s = self.clock.now()
        self.encode_s.append((encoded_s - begun_s) / max(1, hi - lo))
        self.absorb_s.append(absorbed_s - encoded_s)
        self.nbytes.append(len(payload or b""))

    def figures(self) -> CodecFigures | None:
        """Return the figures; None if there were too few steps."""
        late = slice(len(self.nbytes) // 2, None)
        if len(self.nbytes) < 2 or not len(self.x):
            return None
        pairs = zip(self.absorb_s[late], self.nbytes[late], strict=True)
        absorb = [took_s / nbytes for took_s, nbytes in pairs if nbytes]
        return CodecFigures(
            encode_s_per_element=median(self.encode_s[late]),
            absorb_s_per_byte=median(absorb) if absorb else 0.0,
            bits_per_element=8.0 * mean(self.nbytes[late]) / len(self.x),
        )
