"""Dense: the whole change, as float32. The baseline; replicas agree within rounding.

u = (w - b) / p;  send u;  b += u;  w = b
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taut.codecs.codec import Codec, Shapes, State, Vector, check_range, new_state, not_finite, ranges
from taut.codecs.exact_grid import Grid
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.wire.payload import Header, Kind, build


@dataclass(frozen=True)
class Dense(Codec):
    """The codec `dense`, without hyper-parameters. Extra memory: b, and the payload while it is made. Sums round, so
    replicas may differ in the last bits (``exact`` is False)."""

    name: ClassVar[str] = "dense"
    kernels = ("kernels._add_values", "kernels._mean", "feedback._infinite")
    exact: ClassVar[bool] = False

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title="the whole change, as float32",
            bits=32.0,
            error=0.0,
            bound="nothing is lost but what rounding of sums costs",
            paper="",
            cost=CodecCost(3.99e-9, 0.411e-9, 32.0, 8.67e-6),
            advised=4,
            unbiased=True,
            summable=True,
        )

    def start(self, w: Vector, workers: int, grid: Grid | None = None, *, shapes: Shapes = (), seed: int = 0) -> State:
        return new_state(w, workers, grid)

    def emit(self, state: State, lo: int, hi: int) -> bytes | None:
        check_range(state, lo, hi)
        if lo == hi:
            return None
        if not state.kernels.finite(state.w[lo:hi]):
            raise not_finite(state.kernels.host(state.w[lo:hi]), lo)
        change = state.kernels.mean(state.w, state.b, lo, hi, 1.0 / state.workers)
        sent = int(np.count_nonzero(change))
        state.note(sent, hi - lo)
        return build(Header(Kind.DENSE, 0.0, lo, hi - lo, hi - lo), change) if sent else None

    def flush(self, state: State) -> list[bytes]:
        payloads = (self.emit(state, lo, hi) for lo, hi in ranges(state.size))
        return [payload for payload in payloads if payload is not None]
