"""Tether: the optimizer moves w at full speed; where w strays from the shared b by the slack, one sign is sent.

    d = w - b;  where |d_i| >= S:  s = sign(d_i);  send (i, s);  b_i += s * up;  w_i -= s * (S - up)
    on arrival:                    b_i += s * up;  w_i += s * up

S is the slack, held as the number of workers p changes; up = g * S / p, to three significant bits so that it stays on the
grid. By default S follows the size of the optimizer's steps. A gain g of 1 moves b by the mean of the workers' steps, as
synchronous SGD does; a little more (the fourth root of p) made up for what the slack holds back. Adam and its relatives
divide by the gradient's own size, noise included, which synchronous training averages away first: the mean of their steps
is too short by up to sqrt(p), and that is their gain. The gain shrinks with staleness, since stale updates act as
momentum of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from taut.codecs.algorithms.steered import SteeredCodec
from taut.codecs.codec import Shapes, State, Vector, new_state
from taut.codecs.exact_grid import Grid
from taut.codecs.info import CodecCost, CodecInfo, bits_of_signs
from taut.codecs.math.density_control import Steering
from taut.codecs.math.step_size import SAMPLE, StepSize
from taut.codecs.params import check_density, check_one_of, check_positive, check_power

STEPS = 16.0  # of the optimizer's, that the slack is long
LEEWAY = 0.75  # powers of two by which the slack may be off before it moves
DENSITY = 0.012  # of the elements are sent per exchange, about
WARM_EXCHANGES = 80  # with gain 1: at the start all strays point the same way, and lateness is not yet known


@dataclass(frozen=True)
class Tether(SteeredCodec):
    """``slack`` fixes S; ``tau`` fixes it as tau * p, p being the number of workers at the start; ``density`` steers it
    towards that share of the elements per exchange. By default S is 16 of the optimizer's steps, to a power of two, and
    follows them as the learning rate or the gradients change. ``gain`` replaces sqrt(p). Extra memory: b and 1/16. Exact
    on a grid.

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
            else:
                state.step_size = StepSize()
                state.step_size.strays = _strays(state)  # none yet
            return state
        if grid is not None:
            up = round_quantum(slack * self.gain_at(workers, 0.0) / workers)
            grid.check(up, "slack" if self.tau is None else "tau")
        self._set_limit(state, slack)
        return state

    def _before_scan(self, state: State) -> None:
        steps = state.step_size
        if steps is not None:
            steps.note(None if steps.strays is None else _strays(state), state.steps)
            self._follow(state)

    def _after_scan(self, state: State) -> None:
        if state.step_size is not None:
            state.step_size.strays = _strays(state) if state.step_size.due else None

    def adopt(self, state: State, shared: Vector) -> None:
        super().adopt(state, shared)
        self._keep_strays(state)

    def catch_up(self, state: State) -> None:
        super().catch_up(state)
        self._keep_strays(state)

    def _keep_strays(self, state: State) -> None:
        """Keep the strays as they are now, since what b has just moved by is no step of the optimizer's."""
        if state.step_size is not None:
            state.step_size.strays = _strays(state)

    def gain_at(self, workers: int, staleness: float, normalized: bool = True) -> float:
        """Return g = sqrt(p / s), s being the staleness; never more than p, nor than the fourth root of p where the
        optimizer's steps are not ``normalized``. Workers that run freely are late by a step and a half, which is not
        held against them: s counts from there (2s - 2 up to two steps).

        Late updates act as momentum: a gain that is right after one step diverges after eight. In probes (4 workers,
        MNIST and a character transformer, delays of 2, 4 and 8 steps, five gains each) sqrt(p / s) was near the best
        everywhere.

        >>> [Tether().gain_at(4, staleness) for staleness in (1, 4, 16)]
        [2.0, 1.0, 0.5]
        >>> [Tether().gain_at(16, staleness, normalized=False) for staleness in (1, 4, 16)]
        [2.0, 2.0, 1.0]
        """
        full = math.sqrt(workers) if self.gain is None else self.gain
        late = max(1.0, min(staleness, 2.0 * staleness - 2.0))
        most = float(workers) if normalized or self.gain is not None else math.sqrt(full)
        return min(full / math.sqrt(late), most)

    def retune(self, state: State, workers: int, staleness: float) -> None:
        super().retune(state, workers, staleness)
        if state.limit:
            self._set_limit(state, state.limit)

    def fixed(self, state: State, slack: float) -> Tether:
        """Return this codec with another slack, which is fixed from the next exchange on: nothing steers it any more. A
        slack that the grid is too coarse for is doubled until it is not."""
        state.steering = state.step_size = None
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

    def _find_limit(self, state: State, lo: int, hi: int, watch: int) -> bool:
        return state.step_size is None and super()._find_limit(state, lo, hi, watch)

    def _follow(self, state: State) -> None:
        """Let the slack follow the size of the optimizer's steps, and the gain begin small."""
        steps = state.step_size
        if not steps.size:
            return
        wanted = math.log2(STEPS * steps.size)
        moves = not state.limit or abs(math.log2(state.limit) - wanted) > LEEWAY
        if moves or steps.exchanges == WARM_EXCHANGES:
            self._set_limit(state, math.ldexp(1.0, round(wanted)) if moves else state.limit)

    def _set_limit(self, state: State, limit: float) -> None:
        """Take ``limit`` as the slack; a larger one if updates would be finer than the grid, unless it is fixed."""
        gain, steps = self.gain_at(state.workers, state.staleness), state.step_size
        if steps is not None and self.gain is None:
            gain = self.gain_at(state.workers, state.staleness, steps.normalized)
            gain = min(gain, 1.0) if steps.exchanges < WARM_EXCHANGES else gain
        if steps is not None or state.steering is not None:
            while limit * gain / state.workers < state.finest:
                limit *= 2.0
        state.limit, state.tau = limit, limit / state.workers
        state.quantum = round_quantum(limit * gain / state.workers, state.finest)


def _strays(state: State) -> Any:
    """Return w - b of a sample of the elements, in host memory. An odd distance meets all columns of a matrix."""
    step = (state.size - 1) // SAMPLE + 1 | 1
    return state.kernels.host(state.w[::step] - state.b[::step])


def round_quantum(x: float, finest: float = 0.0) -> float:
    """Round ``x`` to three significant bits, and at least to multiples of ``finest`` (a power of two).

    >>> round_quantum(1 / math.sqrt(2)), round_quantum(0.96), round_quantum(0.3, finest=0.25)
    (0.75, 1.0, 0.25)
    """
    exponent = math.frexp(x)[1] - 3
    if finest:
        exponent = max(exponent, math.frexp(finest)[1] - 1)
    return math.ldexp(max(1, round(math.ldexp(x, -exponent))), exponent)
