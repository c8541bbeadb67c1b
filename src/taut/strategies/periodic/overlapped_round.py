"""Training on while a round is held up: somebody has died and nobody knows yet, or cannot be heard.

A worker that has waited for its round for too long (``HeldUp``) takes up its vectors as they are, x_then, and trains on.
When the round is over, at the worker's next turn,

    x  <-  what the round makes of x_then  +  (x - x_then)

So the round is the same that it would have been, with the same numbers in it, and what the worker has moved by since is
kept, once. Whatever the round conserves (the mean over the workers, say) is conserved again as soon as it is over; the
steps meanwhile move it as steps always do. It takes one copy of the vectors, for as long as it lasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taut.strategies.api import Vector


@contextmanager
def moved_aside(x: Vector, then: Vector) -> Iterator[None]:
    """Within, x is what it was ``then``; afterwards what it had moved by is added to what was made of that.

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
    """One worker's. ``then``: its vectors when the round was held up; None: none is. ``held_up`` counts rounds, ``steps``
    those that were made meanwhile."""

    then: Sequence[Vector] | None = None
    held_up: int = 0
    steps: int = 0

    @property
    def under_way(self) -> bool:
        return self.then is not None

    def begin(self, then: Sequence[Vector]) -> None:
        """The worker trains on; ``then`` are copies."""
        self.then = then
        self.held_up += 1

    def stepped(self) -> None:
        """The worker made a step."""
        self.steps += self.under_way

    def drop(self) -> None:
        """There is no round to wait for any more: x is as it is."""
        self.then = None

    @contextmanager
    def kept(self, *vectors: Vector) -> Iterator[None]:
        """Within, the round ends: it sees the vectors as they were when it was held up, if it was."""
        then, self.then = self.then, None
        with ExitStack() as stack:
            for x, before in zip(vectors, then, strict=True) if then is not None else ():
                stack.enter_context(moved_aside(x, before))
            yield

    def figures(self) -> dict[str, float]:
        """Nothing where no round was ever held up.

        >>> OverlappedRound().figures(), OverlappedRound(held_up=1, steps=40).figures()
        ({}, {'held_up': 1.0, 'drifted': 40.0})
        """
        return {"held_up": float(self.held_up), "drifted": float(self.steps)} if self.held_up else {}
