"""Who comes after the end: the run was drained while its state was still under way, and the last round is over.

Everybody who took part in that round holds the same model. The lowest rank of them hands it to those who perhaps did
not; they end with it. As long as the members stay the same, who gave it is among them, in no round, so no other can be
completed. When they change, latecomers leave the group, or they might complete a round without it and end with another
model; and as the group is then stuck, they hand the model to all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.method import Place, Tell

if TYPE_CHECKING:
    from taut.strategies.method import Vector

KIND = "model"


@dataclass
class Latecomers:
    """``began_with``: the members when this worker joined its last round. Whoever is missing there may have come too late
    for it; being handed the model needlessly does no harm.

    >>> from taut.topologies.registry import parse
    >>> late = Latecomers(began_with=(0, 1))
    >>> [tell.to for tell in late.hand_on(Place(0, (0, 1, 5), parse("complete")), np.zeros(1, np.float32))]
    [5]
    >>> late.hand_on(Place(0, (0, 1, 5), parse("complete")), np.zeros(1, np.float32))
    []
    """

    began_with: tuple[int, ...] = ()
    given: frozenset[int] = frozenset()
    handed: Vector | None = None  # this worker is a latecomer itself, and this is the model
    left: bool = False  # and it takes part in no round any more

    def hand_on(self, place: Place, model: Vector) -> list[Tell]:
        """This worker has ended: what it owes to those who came since."""
        if self.handed is not None:
            late = set(place.members) if self.left else set()
        else:
            first = min((rank for rank in place.members if rank in self.began_with), default=place.rank)
            late = set(place.members) - set(self.began_with) if place.rank == first else set()
        late -= self.given | {place.rank}
        if not late:
            return []
        self.given |= late
        payload = model.tobytes()
        return [Tell(rank, Note(KIND), payload) for rank in sorted(late)]

    def take(self, payload: bytes, length: int) -> None:
        """A member, who is still there, sent the model. ``MalformedMessage`` if it is not as long as ours."""
        if len(payload) != 4 * length:
            raise MalformedMessage(f"a model of {len(payload)} bytes; this one has {4 * length}")
        if self.handed is None:
            self.handed = np.frombuffer(payload, np.float32)

    def stays(self) -> bool:
        """The members change: whether this worker stays in the group."""
        self.left = self.handed is not None
        return not self.left
