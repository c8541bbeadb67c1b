"""Tether: the optimizer moves w at full speed; where w strays from the shared b by the slack, one sign is sent.

    d = w - b;  where |d_i| >= S:  s = sign(d_i);  send (i, s);  b_i += s * up;  w_i -= s * (S - up)
    on arrival:                    b_i += s * up;  w_i += s * up

S is the slack, held as the number of workers p changes; up = g * S / p, to three significant bits so that it stays on the
grid. The gain g is sqrt(p): averaging p noisy steps would be g = 1 and loses, g = p would be p times the step. The gain
shrinks with staleness, since stale updates act as momentum of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from taut.codecs.algorithms.steered import SteeredCodec
from taut.codecs.codec import Shapes, State, Vector, new_state
from taut.codecs.exact_grid import Grid
from taut.codecs.info import CodecCost, CodecInfo, bits_of_signs
from taut.codecs.math.density_control import Steering
from taut.codecs.params import check_density, check_one_of, check_positive, check_power

WEIGHT_SHARE = 0.3  # of the median |weight|: the first slack
DENSITY = 0.012  # that the first slack aims at where most weights are zero
DROWNED = 0.25  # share of the elements in one scan at which the slack is far too small (weights that begin near zero)
BAND = (0.08, 6.0)  # times DENSITY: within it the slack stays, so that traffic falls by itself as training converges
PATIENCE = 16
WARM_STEPS = 48  # with half the slack and gain 1: at the start all strays point the same way, and staleness costs most


@dataclass(frozen=True)
class Tether(SteeredCodec):
    """``slack`` fixes S; ``tau`` fixes it as tau * p, p being the number of workers at the start; ``density`` steers it
    towards that share of the elements per exchange. By default S is 0.3 of the median |weight| (of those that are not
    zero), to a power of two, and moves only when the density leaves a wide band, at once where a quarter of the elements
    is sent; for the first 48 exchanges it is half of that, and the gain is 1. ``gain`` replaces sqrt(p). Extra memory: b
    and 1/16. Exact on a grid.

    >>> Tether(slack=2**-6).slack
    0.015625
    """

    name: ClassVar[str] = "tether"
    catches_up: ClassVar[bool] = True
    not_for_vectors: ClassVar[str] = (
        "it tethers each worker to weights that all share, step by step: it has no vector to send"
    )
    kernels: ClassVar[tuple[str, ...]] = (*SteeredCodec.kernels, "kernels._scan_tether")

    slack: float | None = None
    tau: float | None = None
    density: float | None = None
    gain: float | None = None

    def __post_init__(self) -> None:
        check_one_of(self, "slack", "tau", "density")
        check_power(self, "slack")
        check_power(self, "tau")
        check_density(self)
        check_positive(self, "gain")

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title="one sign where the weights stray from the shared ones by the slack",
            bits=bits_of_signs(DENSITY if self.density is None else self.density),
            bound="|w_i - b_i| < slack after a scan, unless it was more than twice that before",
            paper="our own (docs/codecs.md)",
            cost=CodecCost(0.493e-9, 14.2e-9, 0.1058, 16.8e-6),
            summable=True,
        )

    def start(self, w: Vector, workers: int, grid: Grid | None = None, *, shapes: Shapes = (), seed: int = 0) -> State:
        state = new_state(w, workers, grid)
        slack = self.slack if self.tau is None else self.tau * workers
        if slack is None:
            if self.density is not None:
                state.steering = Steering(self.density)
                return state
            state.steering = Steering(DENSITY, *BAND, flood=math.inf, drowned=DROWNED, patience=PATIENCE)
            slack = state.weight_scale(WEIGHT_SHARE) / 2.0
            if not slack:
                return state
            state.steering.warm_steps = WARM_STEPS
        if grid is not None and state.steering is None:
            up = round_quantum(slack * self.gain_at(workers, 0.0) / workers)
            grid.check(up, "slack" if self.tau is None else "tau")
        self._set_limit(state, slack)
        return state

    def gain_at(self, workers: int, staleness: float) -> float:
        """Return g = sqrt(p / s), s being the staleness; never more than p. Workers that run freely are late by a step
        and a half, which is not held against them: s counts from there (2s - 2 up to two steps).

        Late updates act as momentum: a gain that is right after one step diverges after eight. In probes (4 workers,
        MNIST and a character transformer, delays of 2, 4 and 8 steps, five gains each) sqrt(p / s) was near the best
        everywhere.

        >>> [Tether().gain_at(4, staleness) for staleness in (1, 4, 16)]
        [2.0, 1.0, 0.5]
        """
        full = math.sqrt(workers) if self.gain is None else self.gain
        late = max(1.0, min(staleness, 2.0 * staleness - 2.0))
        return min(full / math.sqrt(late), float(workers))

    def retune(self, state: State, workers: int, staleness: float) -> None:
        super().retune(state, workers, staleness)
        if state.limit:
            self._set_limit(state, state.limit)

    def fixed(self, state: State, slack: float) -> Tether:
        """Return this codec with another slack, which is fixed from the next exchange on: nothing steers it any more. A
        slack that the grid is too coarse for is doubled until it is not."""
        state.steering = None
        while slack * self.gain_at(state.workers, state.staleness) / state.workers < state.finest:
            slack *= 2.0
        self._set_limit(state, slack)
        return replace(self, slack=slack, tau=None, density=None)

    def _scan(self, state: State, lo: int, hi: int, limit: float, quantum: float) -> tuple[bytes | None, int]:
        signs = state.kernels.tether(state.w, state.b, lo, hi, limit, quantum, state.words)
        return signs.payload(quantum, lo, hi - lo), signs.count

    def _sample(self, state: State, lo: int, hi: int) -> Vector:
        return state.kernels.sample(state.w, state.b, lo, hi)

    def _flush_quantum(self, state: State, limit: float) -> float:
        """Return the quantum for a gain of 1: strays of the end are averaged, as no next step could mend an overshoot."""
        return round_quantum(limit / state.workers, state.finest)

    def _set_limit(self, state: State, limit: float) -> None:
        """Take ``limit`` as the slack; where it is steered, a larger one if updates would be finer than the grid."""
        warming = state.steering is not None and state.steering.warm_steps > 0 and self.gain is None
        gain = 1.0 if warming else self.gain_at(state.workers, state.staleness)
        if state.steering is not None:
            while limit * gain / state.workers < state.finest:
                limit *= 2.0
        state.limit, state.tau = limit, limit / state.workers
        state.quantum = round_quantum(limit * gain / state.workers, state.finest)


def round_quantum(x: float, finest: float = 0.0) -> float:
    """Round ``x`` to three significant bits, and at least to multiples of ``finest`` (a power of two).

    >>> round_quantum(1 / math.sqrt(2)), round_quantum(0.96), round_quantum(0.3, finest=0.25)
    (0.75, 1.0, 0.25)
    """
    exponent = math.frexp(x)[1] - 3
    if finest:
        exponent = max(exponent, math.frexp(finest)[1] - 1)
    return math.ldexp(max(1, round(math.ldexp(x, -exponent))), exponent)
