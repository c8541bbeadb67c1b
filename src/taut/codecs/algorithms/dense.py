"""Dense: the whole change, as float32. The baseline; replicas agree within rounding.

u = (w - b) / p;  send u;  b += u;  w = b
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taut.codecs.codec import Codec, State, Vector, arithmetic, check_range, check_workers, new_state
from taut.codecs.exact_grid import Grid
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.wire.payload import Header, Kind, build
from taut.errors import NonFiniteUpdate

FLUSH_RANGE = 2**30


@dataclass(frozen=True)
class Dense(Codec):
    """No hyper-parameters. Extra memory: b, and the payload while it is made. Sums round, so replicas may
    differ in the last bits (``exact`` is False)."""

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

    def start(
        self,
        w: Vector,
        workers: int,
        grid: Grid | None = None,
        *,
        shapes: Sequence[tuple[int, ...]] = (),
        seed: int = 0,
    ) -> State:
        return new_state(w, workers, grid)

    def emit(self, state: State, lo: int, hi: int) -> bytes | None:
        check_range(state, lo, hi)
        if lo == hi:
            return None
        if not arithmetic(state.w).finite(state.w[lo:hi]):
            element = lo + int(np.flatnonzero(~np.isfinite(state.kernels.host(state.w[lo:hi])))[0])
            raise NonFiniteUpdate(f"element {element} of the update is NaN or infinite: nothing of it was sent", element)
        change = state.kernels.mean(state.w, state.b, lo, hi, 1.0 / state.workers)
        sent = int(np.count_nonzero(change))
        state.note(sent, hi - lo)
        return build(Header(Kind.DENSE, 0.0, lo, hi - lo, hi - lo), change) if sent else None

    def retune(self, state: State, workers: int, staleness: float) -> None:
        check_workers(workers)
        state.workers, state.staleness = workers, staleness

    def flush(self, state: State) -> list[bytes]:
        """Whatever w moved since the last scan."""
        ranges = ((lo, min(lo + FLUSH_RANGE, state.size)) for lo in range(0, state.size, FLUSH_RANGE))
        payloads = (self.emit(state, lo, hi) for lo, hi in ranges)
        return [payload for payload in payloads if payload is not None]
