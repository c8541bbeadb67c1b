"""Tether: the optimizer moves w at full speed; where w strays from the shared b by the slack, one sign is
sent.

    d = w - b;  where |d_i| >= S:  s = sign(d_i);  send (i, s);  b_i += s * up;  w_i -= s * (S - up)
    on arrival:                    b_i += s * up;  w_i += s * up

S is the slack, held as the number of workers p changes; up = g * S / p, to three significant bits so that it
stays on the grid. The gain g is sqrt(p): averaging p noisy steps would be g = 1 and loses, g = p would be p
times the step. It shrinks with staleness, since what is stale acts as momentum of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from taut.codecs.codec import Codec, State, Vector, check_range, check_workers, new_state
from taut.codecs.exact_grid import Grid
from taut.codecs.info import CodecCost, CodecInfo, bits_of_signs
from taut.codecs.math.density_control import WATCH, Steering, first_limit
from taut.codecs.params import check_density, check_one_of, check_positive, check_power

WEIGHT_SHARE = 0.3  # of the median |weight|: the first slack
DENSITY = 0.012  # what is aimed at by the first slack where most weights are zero
DROWNED = 0.25  # share of the elements in one scan: the slack is far too small (weights that begin near zero)
BAND = (0.08, 6.0)  # times that: within it the slack stays, so that traffic falls by itself as training settles
PATIENCE = 16
WARM_STEPS = 48  # at half the slack and gain 1: at the start all strays point the same way, and lateness costs most
FLUSH_HALVINGS = 3  # after a run so short that nothing was sent yet
FLUSH_PASSES = 8  # at the full slack, for elements that strayed by several


@dataclass(frozen=True)
class Tether(Codec):
    """``slack`` fixes S; ``tau`` fixes it as tau * p, p being the number of workers at the start; ``density`` steers it
    towards that share of the elements per exchange. By default S is 0.3 of the median |weight| (of those that
    are not zero), to a power of two, and moves only when the density leaves a wide band, at once where a quarter of the
    elements is sent; for the first 48 exchanges it is half of that, and the gain is 1.
    ``gain`` replaces sqrt(p). Extra memory: b and 1/16. Exact on a grid.

    >>> Tether(slack=2**-6).slack
    0.015625
    """

    name: ClassVar[str] = "tether"
    kernels = (
        "kernels._add_values",
        "kernels._add_words",
        "kernels._scan_tether",
        "kernels._write_bits",
        "rice_write.plan",
        "rice_write.write",
        "rice_read.read",
    )
    exact: ClassVar[bool] = True

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

    def start(
        self,
        w: Vector,
        workers: int,
        grid: Grid | None = None,
        *,
        shapes: Sequence[tuple[int, ...]] = (),
        seed: int = 0,
    ) -> State:
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
        self._set(state, slack)
        return state

    def gain_at(self, workers: int, staleness: float) -> float:
        """g = sqrt(p / s), s being the staleness; never more than p. Workers that run freely are late by a step and a
        half: that is not held against them, so that s counts from there (2s - 2 up to two steps).

        Late updates act as momentum: what is right after one step diverges after eight. In probes (4 workers, MNIST and
        a character transformer, delays of 2, 4 and 8 steps, five gains each) sqrt(p / s) was near the best everywhere.

        >>> [Tether().gain_at(4, staleness) for staleness in (1, 4, 16)]
        [2.0, 1.0, 0.5]
        """
        full = math.sqrt(workers) if self.gain is None else self.gain
        late = max(1.0, min(staleness, 2.0 * staleness - 2.0))
        return min(full / math.sqrt(late), float(workers))

    def emit(self, state: State, lo: int, hi: int) -> bytes | None:
        check_range(state, lo, hi)
        if lo == hi:
            return None
        if state.limit == 0.0 and not self._judge(state, lo, hi, WATCH):
            return None
        payload, sent = self._scan(state, lo, hi, state.limit, state.quantum)
        state.note(sent, hi - lo)
        if state.steering is not None:
            factor = state.steering.note(sent, hi - lo, state.size)
            if factor != 1.0:
                self._set(state, state.limit * factor)
        return payload

    def retune(self, state: State, workers: int, staleness: float) -> None:
        check_workers(workers)
        state.workers, state.staleness = workers, staleness
        if state.limit:
            self._set(state, state.limit)

    def flush(self, state: State) -> list[bytes]:
        """Scans of everything at S until nothing is over it (eight times at most). The gain is 1 here: strays of the end
        are averaged, as no next step could mend an overshoot. What is below S is noise of the last steps more than
        progress, and averaging that in, too, cost accuracy in most probes; only a run so short that nothing was sent
        before goes down to S/8."""
        unsent = state.words_sent == 0
        if state.limit == 0.0 and not self._judge(state, 0, state.size, 0):
            return []
        payloads: list[bytes] = []
        finest = state.grid.finest if state.grid else 0.0
        limit = state.limit
        up = round_quantum(limit / state.workers, finest)
        for _ in range(FLUSH_PASSES):
            if not self._pass(state, limit, up, payloads):
                break
        for _ in range(FLUSH_HALVINGS if unsent else 0):
            limit /= 2.0
            up = round_quantum(limit / state.workers, finest)
            if up > limit:  # the grid is too coarse for anything smaller
                break
            self._pass(state, limit, up, payloads)
        return payloads

    def _judge(self, state: State, lo: int, hi: int, watch: int) -> bool:
        """Set the first slack, once ``watch`` scans went by in which nothing was sent; False until then."""
        state.steering.watched += 1
        if state.steering.watched < watch:
            return False
        slack = first_limit(state.kernels.sample(state.w, state.b, lo, hi), state.steering.target)
        if slack:
            self._set(state, slack)
        return slack > 0.0

    def _pass(self, state: State, limit: float, up: float, payloads: list[bytes]) -> int:
        total = 0
        for lo in range(0, state.size, FLUSH_RANGE):
            payload, sent = self._scan(state, lo, min(lo + FLUSH_RANGE, state.size), limit, up)
            state.words_sent += sent
            total += sent
            if payload is not None:
                payloads.append(payload)
        return total

    def _scan(self, state: State, lo: int, hi: int, limit: float, up: float) -> tuple[bytes | None, int]:
        signs = state.kernels.tether(state.w, state.b, lo, hi, limit, up, state.words)
        return signs.payload(up, lo, hi - lo), signs.count

    def _set(self, state: State, slack: float) -> None:
        """Take ``slack`` as the limit, unless that would need updates finer than the grid."""
        finest = state.grid.finest if state.grid else 0.0
        warming = state.steering is not None and state.steering.warm_steps > 0 and self.gain is None
        gain = 1.0 if warming else self.gain_at(state.workers, state.staleness)
        if state.steering is not None:
            while slack * gain / state.workers < finest:
                slack *= 2.0
        state.limit, state.tau = slack, slack / state.workers
        state.quantum = round_quantum(slack * gain / state.workers, finest)


FLUSH_RANGE = 2**30


def round_quantum(x: float, finest: float = 0.0) -> float:
    """``x`` to three significant bits, and at least to multiples of ``finest`` (a power of two).

    >>> round_quantum(1 / math.sqrt(2)), round_quantum(0.96), round_quantum(0.3, finest=0.25)
    (0.75, 1.0, 0.25)
    """
    exponent = math.frexp(x)[1] - 3
    if finest:
        exponent = max(exponent, math.frexp(finest)[1] - 1)
    return math.ldexp(max(1, round(math.ldexp(x, -exponent))), exponent)
