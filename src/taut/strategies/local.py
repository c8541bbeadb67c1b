"""What a method sees of its worker: one vector, the run's codec, and the numbers of the optimizers' next step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float32]
else:
    Vector = Any  # a name for annotations: whoever imports this need not wait for numpy


@dataclass
class Wish:
    """The numbers that one optimizer's step depends on (learning rates, momentum, ...), the same everywhere.

    Before a round, ``numbers`` are this worker's own, and ``steps`` says whether its gradients are for this optimizer.
    After it, ``numbers`` are the mean over the samples of all workers whose gradients were; those are ``share`` of all
    samples of the round, and where that is 0 the numbers mean nothing.
    """

    numbers: list[float]
    steps: bool = True
    share: float = 1.0


class VectorCoder(Protocol):
    """The run's codec, for methods that compress vectors (``taut.codecs.vector_codec``)."""

    @property
    def name(self) -> str: ...

    @property
    def workers(self) -> int: ...

    @property
    def bits(self) -> float:
        """Return the bits per element of an update."""

    @property
    def damping(self) -> float:
        """Return the factor by which a difference should count."""

    @property
    def bounded(self) -> bool:
        """Return whether ``pace`` follows from a bound for every vector, and not from a measurement on one."""

    @property
    def pace(self) -> float:
        """Return how far to follow what is known of others through differences."""

    def encode(self, v: Vector, weight: float = 1.0, tail: bytes = b"") -> bytes | memoryview:
        """Write weight * v and the residual, as far as they are worth sending, and the ``tail`` behind it."""

    def fade(self, share: float) -> None:
        """Multiply the residual by ``share``: what was left out counts for less."""

    def difference(self, v: Vector) -> bytes:
        """Write v alone, without the residual."""

    def check(self, payload: bytes | memoryview, size: int) -> None:
        """Raise ``MalformedMessage`` unless ``payload`` is one of ``size`` elements."""

    def add(self, payload: bytes | memoryview, x: Vector, scale: float = 1.0) -> None:
        """Add scale * ``payload`` to x."""

    def part(self, lo: int, hi: int) -> VectorCoder:
        """Return a codec for elements ``lo`` to ``hi`` - 1 alone."""

    def total(self, payloads: Sequence[bytes | memoryview], weights: Sequence[float], out: Vector) -> None:
        """Write the sum of all payloads, added in this order, to ``out``."""

    def room(self, size: int) -> Vector:
        """Return a vector for ``total``, where this codec sums."""

    def put(self, target: Vector, source: Vector) -> None:
        """Copy ``source``, in host memory, to a vector where this codec sums."""

    def host(self, vector: Vector) -> Vector:
        """Return a vector in host memory."""

    def divide(self, x: Vector, by: float, out: Vector) -> None:
        """Write x / ``by`` to ``out``."""


class Local(Protocol):
    """A worker, as its method sees it. Classes that derive from ``Local`` get the defaults of all but ``x``.

    ``x``: the vector to exchange, float32, changed in place: weights or, for methods of gradients, gradients.
    ``coder``: the run's codec for vectors; None where that is dense. ``since``: the round after which the worker's state
    is; ``round_agreement.NEW`` where the state is still to come. ``sizes``: of the tensors that x consists of, in order;
    empty where that is one. ``present``: per tensor, how many workers have a gradient; None where that is not told.
    ``wishes``: one for each optimizer of the script.
    """

    x: Vector
    coder: VectorCoder | None = None
    since: int = 0
    present: Vector | None = None
    sizes: Sequence[int] = ()
    wishes: Sequence[Wish] = ()

    def emit(self) -> bytes | None:
        """Return what the run's codec sends after the local step, for neighbours to ``absorb``; None: nothing."""
        raise AssertionError(f"{type(self).__name__} has no codec that emits")

    def absorb(self, payload: bytes) -> None:
        """Include what a neighbour emitted. Raise ``MalformedMessage`` for anything else."""
        raise AssertionError(f"{type(self).__name__} has no codec that absorbs")


class CodedLocal(Local, Protocol):
    """A worker whose method ``streams``: it talks in what the codec emits, and such payloads add."""

    def check(self, payload: bytes) -> None:
        """Raise ``MalformedMessage`` unless ``absorb`` and ``merge`` can take the payload."""

    def merge(self, payloads: Sequence[bytes]) -> bytes:
        """Return one payload with the effect of all of these."""

    def flush(self) -> list[bytes]:
        """Return the last payloads that are worth sending, at the end of the run."""

    def retune(self, workers: int, staleness: float) -> None:
        """Adapt the codec to the workers that have an update, the sender included, and to its staleness in steps."""

    @property
    def shared(self) -> Vector:
        """Return the weights without what the codec has not sent yet: the sum of all updates."""

    def shift(self, change: Vector) -> None:
        """Move the weights by ``change`` without the codec sending it."""

    def adopt(self, shared: Vector) -> None:
        """Take these shared weights as the worker's own."""
