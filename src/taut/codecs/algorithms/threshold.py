"""Threshold (Strom 2015): a change is applied when it is sent; until then it waits in a residual.

    r += (w - b) g / p
    where |r_i| >= tau:  s = sign(r_i);  send (i, s);  r_i -= s * tau;  b_i += s * tau
    w = b

At most one ±tau per element and scan. The sum of all changes is the sum of what was sent plus the residual; on a grid,
exactly. The paper's form is g = 1, without a lead: those two are against what a residual costs.

A residual makes updates late, by as long as it takes to fill, and late updates act as momentum on top of the optimizer's
own: weights overshoot and swing. A lead of h scans takes the change as it will be h scans on, if it goes on as it does:

    c = w - b;    r += (c + lead (c - c')) g / p;    c' = c         c': the change of the scan before
    sum of (c + lead (c - c')) = sum of c + lead (the last c)

Nothing is made up: the leads of all scans add up to that of the last one. The momentum mu of an optimizer stretches the
effect of one gradient over many steps, mu / (1 - mu) of it after the first; a lead of as much counts all of it at once.
It is our own form of what Lin et al. 2018 (DGC) do about momentum in residuals: they forget the momentum of elements that
are sent, which must then be the codec's; a lead needs to know nothing of the optimizer.

Nikko Strom, "Scalable distributed DNN training using commodity GPU cloud computing", Interspeech 2015.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taut.codecs.algorithms.steered import SteeredCodec
from taut.codecs.codec import Shapes, State, Vector, check_range, new_state
from taut.codecs.exact_grid import Grid
from taut.codecs.info import CodecCost, CodecInfo, bits_of_signs
from taut.codecs.math.density_control import Steering
from taut.codecs.params import check_density, check_not_negative, check_one_of, check_positive, check_power

DENSITY = 0.012
NEVER = 2.0**120  # a tau that nothing reaches
PIECE = 1 << 16  # elements, while they are in the processor's cache; of a tensor on a GPU, all at once


@dataclass(frozen=True)
class Threshold(SteeredCodec):
    """``tau`` fixes the threshold; ``density`` (the default) steers it. ``gain``: g, 1 by default. ``lead``: by how many
    exchanges changes are taken ahead, 0 by default; with one, another vector is kept. Extra memory: b, r and 1/16. Exact
    on a grid.

    >>> Threshold(tau=2**-8).tau
    0.00390625
    """

    name: ClassVar[str] = "threshold"
    not_for_vectors: ClassVar[str] = "it sends one quantum per element at most: too little for the work of many steps"
    kernels: ClassVar[tuple[str, ...]] = (*SteeredCodec.kernels, "kernels._scan_threshold")

    tau: float | None = None
    density: float | None = None
    gain: float | None = None
    lead: float | None = None

    def __post_init__(self) -> None:
        check_one_of(self, "tau", "density")
        check_power(self, "tau")
        check_density(self)
        check_positive(self, "gain")
        check_not_negative(self, "lead")

    @property
    def conserves(self) -> bool:
        return not (self.gain or self.lead)

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title="one sign where the residual reaches tau",
            bits=bits_of_signs(DENSITY if self.density is None else self.density),
            bound="|r_i| < tau after a scan, unless it was more than twice that before",
            paper="Strom 2015",
            cost=CodecCost(0.762e-9, 20.0e-9, 0.1058, 13.2e-6),
            advised=1,
            summable=True,
        )

    def start(self, w: Vector, workers: int, grid: Grid | None = None, *, shapes: Shapes = (), seed: int = 0) -> State:
        if self.tau is not None and grid is not None:
            grid.check(self.tau)
        state = new_state(w, workers, grid, residual=True)
        if self.lead:
            state.before = state.kernels.like(w, 3, filled=False)
        if self.tau is None:
            state.steering = Steering(DENSITY if self.density is None else self.density)
        else:
            self._set_limit(state, self.tau)
        return state

    def emit(self, state: State, lo: int, hi: int) -> bytes | None:
        check_range(state, lo, hi)
        if state.before is not None and state.r is not None:  # not in ``flush``: nothing is ahead there
            factor = (self.lead or 0.0) * self._share(state)
            take_lead(state.w[lo:hi], state.b[lo:hi], state.r[lo:hi], state.before[lo:hi], factor)
        return super().emit(state, lo, hi)

    def _find_limit(self, state: State, lo: int, hi: int, watch: int) -> bool:
        self._scan(state, lo, hi, NEVER, NEVER)  # accumulates, and sends nothing
        return super()._find_limit(state, lo, hi, watch)

    def _sample(self, state: State, lo: int, hi: int) -> Vector:
        return state.kernels.sample(state.r, None, lo, hi)

    def _share(self, state: State) -> float:
        return (1.0 if self.gain is None else self.gain) / state.workers

    def _scan(self, state: State, lo: int, hi: int, limit: float, quantum: float) -> tuple[bytes | None, int]:
        signs = state.kernels.threshold(state.w, state.b, state.r, lo, hi, limit, self._share(state), state.words)
        return signs.payload(limit, lo, hi - lo), signs.count

    def _flush_quantum(self, state: State, limit: float) -> float:
        return max(limit, state.finest)

    def _set_limit(self, state: State, limit: float) -> None:
        """Take ``limit`` as tau, or the grid's finest quantum if that is coarser."""
        state.limit = state.quantum = state.tau = max(limit, state.finest)


def take_lead(w: Vector, b: Vector, r: Vector, before: Vector, factor: float) -> None:
    """Compute r += (c - c') factor; c' (``before``) = c, c being w - b. In place; the same bits from NumPy and torch.

    >>> w, b, r, before = (np.array(v, np.float32) for v in ([3.0], [1.0], [0.5], [1.0]))
    >>> take_lead(w, b, r, before, 4.0); r.tolist(), before.tolist()
    ([4.5], [2.0])
    """
    step = PIECE if isinstance(w, np.ndarray) else max(1, len(w))
    times: Any = np.float32(factor) if isinstance(w, np.ndarray) else w.new_full((), factor)
    for lo in range(0, len(w), step):
        change, last = w[lo : lo + step] - b[lo : lo + step], before[lo : lo + step]
        r[lo : lo + step] += (change - last) * times
        last[:] = change
