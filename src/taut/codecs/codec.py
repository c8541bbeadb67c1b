"""The contract of a codec, and the state that every codec works on.

A codec is a frozen record of hyper-parameters; everything that changes is in the ``State``. It sees one flat float32
vector w, which the optimizer moves in place, and keeps beside it b, the weights that all replicas share. ``emit`` scans a
range of w and returns the payload for everyone; ``absorb`` takes in the payloads of others. Whatever the order,

    b = b0 + everything sent by anyone so far and absorbed here,

so after a drain all replicas have the same b: to the last bit if ``exact`` (and started on a ``Grid``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from taut.codecs.exact_grid import Grid, take_finite
from taut.codecs.info import CodecInfo
from taut.codecs.wire.apply import apply
from taut.codecs.wire.layouts import LAYOUTS
from taut.codecs.wire.layouts.sparse import IndexedLayout
from taut.codecs.wire.magnitude import check_reach
from taut.codecs.wire.payload import Bytes, Header, Kind, body_of, read
from taut.codecs.wire.sign_list import room_for_words
from taut.codecs.wire.validate import frame, rice_words, validate
from taut.errors import MalformedMessage, Misuse, NonFiniteUpdate

Vector = Any  # float32, one-dimensional, contiguous: a NumPy array, or a torch tensor on any device
Shapes = Sequence[tuple[int, ...]]
BLOCK = 64
FLUSH_RANGE = 2**30  # elements that are scanned at once at the end of a run
SMOOTHING_STEPS = 64.0  # over how many calls of emit the reported density is smoothed


@dataclass(eq=False)
class State:
    """The state that a codec keeps for one replica. ``w`` belongs to the caller; the rest is held here.

    ``workers``, ``staleness``: as last given to ``retune``. ``limit``: the stray (tether) or residual
    (threshold) at which an element is sent; 0 until it is known. ``quantum``: what one sign is worth.
    ``tau``: the nominal quantum, limit / p for tether. ``density``: share of all elements sent per call of
    emit (one a step), smoothed.
    """

    w: Vector = field(repr=False)
    b: Vector = field(repr=False)
    kernels: ModuleType
    grid: Grid | None
    workers: int
    words: Any = field(repr=False)  # buffer for a scan's words
    r: Vector | None = field(default=None, repr=False)
    before: Vector | None = field(default=None, repr=False)  # with a lead: the changes of the last scan
    staleness: float = 0.0
    limit: float = 0.0
    quantum: float = 0.0
    tau: float = 0.0
    density: float = 0.0
    words_sent: int = 0
    steering: Any = None  # of an adaptive limit: see ``taut.codecs.math.density_control``
    steps: int = 1  # of the optimizer since the last call of emit
    step_size: Any = None  # that a limit follows: see ``taut.codecs.math.step_size``
    memory: Any = None  # of a compressor: see ``taut.codecs.compressor``
    _weight: float = field(default=0.0, repr=False)

    @property
    def size(self) -> int:
        return len(self.w)

    @property
    def finest(self) -> float:
        """Return the finest quantum that the grid allows, 0.0 without a grid."""
        return self.grid.finest if self.grid else 0.0

    @property
    def held_nbytes(self) -> int:
        """Return the bytes of the vectors and buffers that the codec keeps beside w."""
        return sum(int(held.nbytes) for held in (self.b, self.words, self.r, self.before) if held is not None)

    @property
    def measured(self) -> bool:
        """Return whether the codec has what it takes from the optimizer's first steps, so that it may miss others."""
        return self.step_size is None or self.step_size.measured > 0

    def note(self, sent: int, scanned: int) -> None:
        """Count a call of ``emit``: ``sent`` of ``scanned`` elements were sent."""
        self.words_sent += sent
        keep = math.exp(-1.0 / SMOOTHING_STEPS)
        self._weight = keep * self._weight + (1.0 - keep)  # so that the first steps are a plain mean
        self.density += (1.0 - keep) / self._weight * (sent / max(1, self.size) - self.density)


class CheckedPayload(NamedTuple):
    """A payload that was found right: its header, and its words where checking had to decode them."""

    head: Header
    words: Any = None

    @property
    def nbytes(self) -> int:
        """Return the bytes of the words."""
        return 0 if self.words is None else int(self.words.nbytes)


class Codec(ABC):
    """A way to write updates down. ``exact``: replicas that started on a grid agree to the last bit after a drain.

    >>> from taut.codecs import parse
    >>> codec, w = parse("tether:slack=2^-6"), np.zeros(64, np.float32)
    >>> state = codec.start(w, workers=4)
    >>> w[5] += 0.02                              # the optimizer's step
    >>> payload = codec.emit(state, 0, 64)        # for everyone else: 28 bytes of header, and one word, coded
    >>> len(payload), float(codec.shared(state)[5])
    (31, 0.0078125)
    """

    name: ClassVar[str]
    exact: ClassVar[bool]
    kernels: ClassVar[tuple[str, ...]] = ()  # kernels for NumPy vectors, ``module.function`` of kernels/cpu
    not_for_vectors: ClassVar[str] = "it writes a worker's updates, and has no form for other vectors"
    not_for_differences: ClassVar[str] = ""
    fine: ClassVar[bool] = False
    whole: ClassVar[bool] = False  # whether the whole vector must be scanned at once
    catches_up: ClassVar[bool] = False  # ``catch_up`` takes the place of scans while no other worker holds b

    @property
    def conserves(self) -> bool:
        """Return whether all changes, divided by the workers, are what was sent and what is left in the residual."""
        return True

    @property
    @abstractmethod
    def facts(self) -> CodecInfo:
        """Return the codec's description: bits, error bound, paper."""

    @abstractmethod
    def start(self, w: Vector, workers: int, grid: Grid | None = None, *, shapes: Shapes = (), seed: int = 0) -> State:
        """Return the state for live weights ``w``, with b = w now. Give the ``grid`` they were snapped to. ``shapes``: of
        the tensors in w, in order, for codecs that see matrices. ``seed``: of random numbers; another for each worker."""

    @abstractmethod
    def emit(self, state: State, lo: int, hi: int) -> bytes | None:
        """Scan elements ``lo..hi-1`` (``lo`` a multiple of 64) in place; return the payload for everyone, or None."""

    def retune(self, state: State, workers: int, staleness: float) -> None:
        """Take over a new number of workers, or a new measured staleness (in steps)."""
        check_workers(workers)
        state.workers, state.staleness = workers, staleness

    @abstractmethod
    def flush(self, state: State) -> list[bytes]:
        """Return the last payloads of the run: the rest, as far as it is worth sending."""

    def check(self, state: State, payload: Bytes) -> CheckedPayload:
        """Check every byte of another worker's payload before it is kept or applied; return what ``absorb`` can use.
        Raise ``MalformedMessage`` where the payload is malformed, would break this codec's promise, or changes a weight
        by far too much."""
        head = frame(payload, state.size)
        self._admit(state, head)
        words = rice_words(payload, head) if head.kind is Kind.RICE else None
        if words is None:
            validate(payload, state.size)
        if state.grid is not None:
            check_reach(payload, head, state.grid)
        return CheckedPayload(head, words)

    def absorb(self, state: State, payload: Bytes, checked: CheckedPayload | None = None) -> None:
        """Apply another worker's payload to b and w. All of it is validated first: ``MalformedMessage`` leaves the state
        as it was. ``checked``: the result of an earlier ``check``."""
        head, words = checked or self.check(state, payload)
        if words is not None:
            state.kernels.add_words(state.w, state.b, head.base, words, head.quantum)
        else:
            apply(state, payload, head)

    def words_of(self, payload: Bytes, checked: CheckedPayload | None) -> tuple[int, Any, float] | None:
        """Return the first element, the words and the quantum of a payload that was checked; None if it has no words."""
        if checked is None:
            return None
        head, words = checked
        if words is None and head.kind is Kind.WORDS:
            words = read(payload, np.uint32, head.count)
        return None if words is None else (head.base, words, head.quantum)

    def entries_of(self, payload: Bytes, checked: CheckedPayload | None) -> tuple[int, Any, Any] | None:
        """Return the first element, the rising indices and the values of a sparse payload that was checked; else None."""
        if checked is None or checked.head.kind is not Kind.SPARSE:
            return None
        return checked.head.base, *IndexedLayout().entries(checked.head, body_of(payload))

    def shared(self, state: State) -> Vector:
        """Return b, on which all replicas agree after a drain: the state's own vector, not a copy."""
        return state.b

    def adopt(self, state: State, shared: Vector) -> None:
        """Take ``shared`` from the donor, as a newcomer does: b = w = shared, and nothing is left to send."""
        _check_length(state, shared)
        state.kernels.load(state.b, shared)
        state.kernels.load(state.w, shared)
        if state.r is not None:
            state.r *= 0.0
        if state.before is not None:
            state.before *= 0.0

    def rebase(self, state: State, shared: Vector) -> None:
        """Take ``shared`` from the donor and keep what was not sent, as a worker that rejoins does: b' = shared, w' =
        shared + (w - b), and the residual stays."""
        _check_length(state, shared)
        stray = state.kernels.host(state.w) - state.kernels.host(state.b)
        state.kernels.load(state.b, shared)
        state.kernels.load(state.w, shared + stray)

    def catch_up(self, state: State) -> None:
        """Move b to w, as near as the grid has it, where no other worker holds b: nothing need be sent for that."""
        if state.grid is not None:
            state.grid.take(state.b, state.w)
        else:
            take_finite(state.b, state.w)

    def left(self, state: State) -> Vector | None:
        """Return the residual, which a worker that leaves hands on; None if there is none. The tether has none: strays
        below the slack are noise of the last steps more than progress."""
        return state.r

    def inherit(self, state: State, lo: int, left: Vector) -> None:
        """Add the residual of a worker that left, from element ``lo`` on, to this one's."""
        if state.r is not None:
            part = state.r[lo : lo + len(left)]
            state.kernels.load(part, state.kernels.host(part) + left)

    def _admit(self, state: State, head: Header) -> None:
        """Raise for a well-formed payload that would break this codec's promise."""
        if not self.exact:
            return
        if head.kind is Kind.DENSE or head.kind in LAYOUTS:
            raise MalformedMessage(f"{head.kind.name} payload for codec {self.name}, whose sums are exact")
        if state.grid is not None and not (head.quantum / state.grid.finest).is_integer():
            raise MalformedMessage(f"quantum {head.quantum:g} is not on the run's grid of {state.grid.finest:g}")


def new_state(w: Vector, workers: int, grid: Grid | None, residual: bool = False) -> State:
    """Return a state with b = w, for a NumPy array or a torch tensor."""
    check_workers(workers)
    if isinstance(w, np.ndarray):
        from taut.codecs.kernels.cpu import kernels
    else:
        kernels = torch_kernels(w)
    if "float32" not in str(w.dtype) or w.ndim != 1:
        raise Misuse(f"weights of type {w.dtype} and shape {tuple(w.shape)}", "one flat float32 vector")
    if grid is not None and sum(grid.sizes) != len(w):
        raise Misuse(f"a grid for {sum(grid.sizes)} elements", f"one for {len(w)}, the length of the weights")
    state = State(w, kernels.like(w, 1, filled=True), kernels, grid, workers, room_for_words(len(w)))
    if residual:
        state.r = kernels.like(w, 2, filled=False)
    return state


def torch_kernels(w: Vector) -> ModuleType:
    """Return Triton's kernels if the tensor is on a GPU and Triton is installed, else those of torch operations: the bits
    are the same."""
    if w.is_cuda and find_spec("triton"):
        from taut.codecs.kernels.triton import kernels
    else:
        from taut.codecs.kernels import torch_ops as kernels  # type: ignore[no-redef]
    return kernels


def _check_length(state: State, shared: Vector) -> None:
    if len(shared) != state.size:
        raise Misuse(f"shared weights of {len(shared)} elements", f"{state.size}, the length of the model")


def ranges(size: int, step: int = FLUSH_RANGE) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of consecutive ranges that make up a vector, ``step`` elements each, the last perhaps shorter.

    >>> list(ranges(5, 2))
    [(0, 2), (2, 4), (4, 5)]
    """
    return ((lo, min(lo + step, size)) for lo in range(0, size, step))


def not_finite(values: Any, lo: int = 0) -> NonFiniteUpdate:
    """Return the error that names the first element of ``values`` (in host memory, from element ``lo`` on) that is NaN or
    infinite."""
    bad = np.flatnonzero(~np.isfinite(values))
    element = lo + int(bad[0]) if bad.size else lo
    return NonFiniteUpdate(f"element {element} of the update is NaN or infinite: nothing of it was sent", element)


def check_workers(workers: int) -> None:
    if workers < 1:
        raise Misuse(f"{workers} workers", "at least one")


def check_range(state: State, lo: int, hi: int) -> None:
    if lo % BLOCK or not 0 <= lo <= hi <= state.size or hi - lo > 2**31:
        raise Misuse(
            f"range {lo}..{hi}",
            f"a range within 0..{state.size}, beginning at a multiple of {BLOCK}, of at most 2^31 elements",
        )
