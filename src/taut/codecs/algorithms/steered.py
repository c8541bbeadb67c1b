"""The scheme that `tether` and `threshold` share: an element sends one sign when it is over a limit, and the limit is
fixed, or steered by density (``math/density_control.py``).

A scan sends a sign for every element over the limit. At the end of a run everything is scanned until nothing is over it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from taut.codecs.codec import Codec, State, Vector, check_range, ranges
from taut.codecs.math.density_control import WATCH, first_limit

FLUSH_HALVINGS = 7  # after a run so short that nothing was sent yet
FLUSH_PASSES = 8  # at the full limit, for elements that are over it several times


class SteeredCodec(Codec):
    """A codec of signs with one limit for all elements. ``State.limit`` is 0 until the first limit is known."""

    kernels: ClassVar[tuple[str, ...]] = (
        "kernels._add_values", "kernels._add_words", "kernels._write_bits", "rice_write.plan", "rice_write.write",
        "rice_read.read",
    )  # fmt: skip
    exact: ClassVar[bool] = True

    def emit(self, state: State, lo: int, hi: int) -> bytes | None:
        check_range(state, lo, hi)
        self._before_scan(state)
        payload = None
        if lo < hi and (state.limit or self._find_limit(state, lo, hi, WATCH)):
            payload, sent = self._scan(state, lo, hi, state.limit, state.quantum)
            state.note(sent, hi - lo)
            factor = 1.0 if state.steering is None else state.steering.note(sent, hi - lo, state.size)
            if factor != 1.0:
                self._set_limit(state, state.limit * factor)
        self._after_scan(state)
        return payload

    def _before_scan(self, state: State) -> None:
        """Look at the strays before an exchange sends any of them."""

    def _after_scan(self, state: State) -> None:
        """Look at the strays that an exchange has left."""

    def flush(self, state: State) -> list[bytes]:
        """Scan everything at the limit until nothing is over it, eight times at most. What is below the limit is noise
        of the last steps more than progress; averaging that in, too, cost accuracy in most probes. Only a run so short
        that nothing was sent before goes down to an eighth of the limit."""
        unsent = state.words_sent == 0
        payloads: list[bytes] = []
        if state.limit == 0.0 and not self._find_limit(state, 0, state.size, 0):
            return payloads
        limit = state.limit
        for _ in range(FLUSH_PASSES):
            if not self._scan_all(state, limit, payloads):
                break
        for _ in range(FLUSH_HALVINGS if unsent else 0):
            limit /= 2.0
            if self._flush_quantum(state, limit) > limit:  # the grid is too coarse for anything smaller
                break
            self._scan_all(state, limit, payloads)
        return payloads

    def _find_limit(self, state: State, lo: int, hi: int, watch: int) -> bool:
        """Set the first limit, once ``watch`` scans went by in which nothing was sent; return whether it is set."""
        state.steering.watched += 1
        if state.steering.watched < watch:
            return False
        limit = first_limit(self._sample(state, lo, hi), state.steering.target)
        if limit:
            self._set_limit(state, limit)
        return limit > 0.0

    def _scan_all(self, state: State, limit: float, payloads: list[bytes]) -> int:
        """Scan the whole vector for the last time; append to ``payloads`` and return how many signs were sent."""
        total, quantum = 0, self._flush_quantum(state, limit)
        for lo, hi in ranges(state.size):
            payload, sent = self._scan(state, lo, hi, limit, quantum)
            state.words_sent += sent
            total += sent
            if payload is not None:
                payloads.append(payload)
        return total

    @abstractmethod
    def _scan(self, state: State, lo: int, hi: int, limit: float, quantum: float) -> tuple[bytes | None, int]:
        """Send a sign worth ``quantum`` for each element over ``limit``; return the payload and the number of signs."""

    @abstractmethod
    def _sample(self, state: State, lo: int, hi: int) -> Vector:
        """Return a sample of the magnitudes that are compared with the limit."""

    @abstractmethod
    def _set_limit(self, state: State, limit: float) -> None:
        """Take ``limit``, or the nearest that the grid allows, and the quantum that goes with it."""

    @abstractmethod
    def _flush_quantum(self, state: State, limit: float) -> float:
        """Return what one sign is worth at the end of the run."""
