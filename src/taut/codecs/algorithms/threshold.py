"""Threshold (Strom 2015): only what was sent is applied, the rest waits in a residual.

    r += (w - b) g / p
    where |r_i| >= tau:  s = sign(r_i);  send (i, s);  r_i -= s * tau;  b_i += s * tau
    w = b

At most one ±tau per element and scan. What was accumulated is what was sent and what is left, exactly where
the sums are. The paper's form is g = 1, without a lead (``lookahead.py``): those two are against what a residual costs.

Nikko Strom, "Scalable distributed DNN training using commodity GPU cloud computing", Interspeech 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from taut.codecs.algorithms.lookahead import take_lead
from taut.codecs.codec import Codec, State, Vector, check_range, check_workers, new_state
from taut.codecs.exact_grid import Grid
from taut.codecs.info import CodecCost, CodecInfo, bits_of_signs
from taut.codecs.math.density_control import WATCH, Steering, first_limit
from taut.codecs.params import check_density, check_not_negative, check_one_of, check_positive, check_power

DENSITY = 0.012
FLUSH_HALVINGS = 3  # after a run so short that nothing was sent yet
FLUSH_PASSES = 8
FLUSH_RANGE = 2**30
NEVER = 2.0**120  # a tau that nothing reaches


@dataclass(frozen=True)
class Threshold(Codec):
    """``tau`` fixes the threshold; ``density`` (the default) steers it. ``gain``: g, 1 by default. ``lead``: by how many
    exchanges changes are taken ahead (``lookahead.py``), 0 by default; with one, another vector is kept. Extra memory:
    b, r and 1/16. Exact on a grid.

    >>> Threshold(tau=2**-8).tau
    0.00390625
    """

    name: ClassVar[str] = "threshold"
    kernels = (
        "kernels._add_values",
        "kernels._add_words",
        "kernels._scan_threshold",
        "kernels._write_bits",
        "rice_write.plan",
        "rice_write.write",
        "rice_read.read",
    )
    exact: ClassVar[bool] = True

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

    def start(
        self,
        w: Vector,
        workers: int,
        grid: Grid | None = None,
        *,
        shapes: Sequence[tuple[int, ...]] = (),
        seed: int = 0,
    ) -> State:
        if self.tau is not None and grid is not None:
            grid.check(self.tau)
        state = new_state(w, workers, grid, residual=True)
        if self.lead:
            state.before = state.kernels.like(w, 3, filled=False)
        if self.tau is None:
            state.steering = Steering(DENSITY if self.density is None else self.density)
        else:
            self._set(state, self.tau)
        return state

    def emit(self, state: State, lo: int, hi: int) -> bytes | None:
        check_range(state, lo, hi)
        if lo == hi:
            return None
        self._lead(state, lo, hi)
        if state.limit == 0.0 and not self._judge(state, lo, hi, WATCH):
            return None
        payload, sent = self._scan(state, lo, hi, state.limit)
        state.note(sent, hi - lo)
        if state.steering is not None:
            factor = state.steering.note(sent, hi - lo, state.size)
            if factor != 1.0:
                self._set(state, state.limit * factor)
        return payload

    def retune(self, state: State, workers: int, staleness: float) -> None:
        """The share 1/p changes for what is accumulated from now on. Staleness changes nothing here, as in
        the paper."""
        check_workers(workers)
        state.workers, state.staleness = workers, staleness

    def flush(self, state: State) -> list[bytes]:
        """Scans of everything at tau until nothing is over it (eight times at most), as ``Tether``'s."""
        unsent = state.words_sent == 0
        if state.limit == 0.0 and not self._judge(state, 0, state.size, 0):
            return []
        payloads: list[bytes] = []
        tau = state.limit
        for _ in range(FLUSH_PASSES):
            if not self._pass(state, tau, payloads):
                break
        for _ in range(FLUSH_HALVINGS if unsent else 0):
            tau /= 2.0
            if state.grid is not None and tau < state.grid.finest:
                break
            self._pass(state, tau, payloads)
        return payloads

    def _judge(self, state: State, lo: int, hi: int, watch: int) -> bool:
        """Accumulate without sending, and set the first tau once ``watch`` scans went by; False until
        then."""
        self._scan(state, lo, hi, NEVER)
        state.steering.watched += 1
        if state.steering.watched < watch:
            return False
        tau = first_limit(state.kernels.sample(state.r, None, lo, hi), state.steering.target)
        if tau:
            self._set(state, tau)
        return tau > 0.0

    def _pass(self, state: State, tau: float, payloads: list[bytes]) -> int:
        total = 0
        for lo in range(0, state.size, FLUSH_RANGE):
            payload, sent = self._scan(state, lo, min(lo + FLUSH_RANGE, state.size), tau)
            state.words_sent += sent
            total += sent
            if payload is not None:
                payloads.append(payload)
        return total

    def _lead(self, state: State, lo: int, hi: int) -> None:
        """Before a scan that follows a step. Not at the end: nothing is ahead there."""
        if state.before is not None and state.r is not None:
            factor = (self.lead or 0.0) * self._share(state)
            take_lead(state.w[lo:hi], state.b[lo:hi], state.r[lo:hi], state.before[lo:hi], factor)

    def _share(self, state: State) -> float:
        return (1.0 if self.gain is None else self.gain) / state.workers

    def _scan(self, state: State, lo: int, hi: int, tau: float) -> tuple[bytes | None, int]:
        signs = state.kernels.threshold(state.w, state.b, state.r, lo, hi, tau, self._share(state), state.words)
        return signs.payload(tau, lo, hi - lo), signs.count

    def _set(self, state: State, tau: float) -> None:
        """Take ``tau``, or the grid's finest quantum if that is coarser."""
        finest = state.grid.finest if state.grid else 0.0
        state.limit = state.quantum = state.tau = max(tau, finest)
