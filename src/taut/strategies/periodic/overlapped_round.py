"""Training on while a round is held up: a worker has died and this is not known yet, or it cannot be reached.

A worker that has waited for its round for too long (``HeldUp``) copies its vectors, x_then, and trains on. When the round
is over, at the worker's next turn,

    x  <-  result of the round for x_then  +  (x - x_then)

So the round has the same result as without the delay, and the worker keeps its steps since, once. An invariant of the
round (the mean over the workers, say) holds again as soon as it is over; the steps meanwhile change it as steps always
do. This needs one copy of the vectors, for as long as the delay lasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

from taut.strategies.api import Vector


@contextmanager
def moved_aside(x: Vector, then: Vector) -> Iterator[None]:
    """Set x to ``then`` within the block; afterwards add the difference to the block's result.

    >>> import numpy as np
    >>> x = np.float32([5.0])
    >>> with moved_aside(x, np.float32([3.0])):
    ...     x /= 3
    >>> x.tolist()
    [3.0]
    """
    moved = x - then
    x[:] = then
    yield
    x += moved


@dataclass
class OverlappedRound:
    """One worker's delayed round. ``then``: its vectors when the round was held up; None: no round is. ``held_up``
    counts rounds, ``steps`` the steps made meanwhile."""

    then: Sequence[Vector] | None = None
    held_up: int = 0
    steps: int = 0

    @property
    def under_way(self) -> bool:
        return self.then is not None

    def begin(self, then: Sequence[Vector]) -> None:
        """Start to train on; ``then`` are copies."""
        self.then = then
        self.held_up += 1

    def stepped(self) -> None:
        self.steps += self.under_way

    def drop(self) -> None:
        """Forget the round and keep x as it is."""
        self.then = None

    def kept(self, *vectors: Vector) -> AbstractContextManager[object]:
        """Restore the vectors of a delayed round within the block, where the round ends; then add the steps since."""
        if self.then is None:
            return nullcontext()
        stack = ExitStack()
        for x, before in zip(vectors, self.then, strict=True):
            stack.enter_context(moved_aside(x, before))
        self.then = None
        return stack

    def figures(self) -> dict[str, float]:
        """Return the counts; empty if no round was ever held up.

        >>> OverlappedRound().figures(), OverlappedRound(held_up=1, steps=40).figures()
        ({}, {'held_up': 1.0, 'drifted': 40.0})
        """
        return {"held_up": float(self.held_up), "drifted": float(self.steps)} if self.held_up else {}
