"""Who comes after the end: the run was drained while its state was still under way, and the last round is over.

Everybody who took part in that round holds the same model. The lowest rank of them hands it to those who perhaps did
not; they end with it. As long as the members stay the same, who gave it is among them, in no round, so no other can be
completed. When they change, late joiners leave the group, or they might complete a round without it and end with another
model; and as the group is then stuck, they hand the model to all.

A worker takes a model over only where it can be a late joiner: the run is being drained here too, this worker has
completed no round, and when all told their last round for the first time, somebody had (``RoundAgreement.founder``). In
any other state of the run the model is refused. Late ones that have left the group still tell their last round, for
later ones.

Where nobody is to be believed alone (``by_majority``), all who have the model hand it on, and a late joiner takes it when
more than half of those who came before it (ranks below its own) have sent the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies.api import Membership, Note, Tell, Vector

KIND = "model"


@dataclass
class FinalModelForJoiners:
    """``began_with``: the members when this worker joined its last round. Whoever is missing there may have come too late
    for it; being handed the model needlessly does no harm.

    >>> from taut.topologies.registry import parse
    >>> late = FinalModelForJoiners(began_with=(0, 1))
    >>> [tell.to for tell in late.hand_on(Membership(0, (0, 1, 5), parse("complete")), np.zeros(1, np.float32))]
    [5]
    >>> late.hand_on(Membership(0, (0, 1, 5), parse("complete")), np.zeros(1, np.float32))
    []
    """

    began_with: tuple[int, ...] = ()
    given: frozenset[int] = frozenset()
    handed: Vector | None = None  # this worker is a late joiner itself, and this is the model
    left: bool = False  # and it takes part in no round any more
    by_majority: bool = False
    offers: dict[int, bytes] = field(default_factory=dict)  # by sender, until one may be taken

    def hand_on(self, membership: Membership, model: Vector) -> list[Tell]:
        """Return what this worker, which has ended, owes to those who came since."""
        first = min((rank for rank in membership.members if rank in self.began_with), default=membership.rank)
        gives = self.left if self.handed is not None else membership.rank == first
        known = set() if self.handed is not None else set(self.began_with)
        late = set(membership.members) - known - self.given - {membership.rank}
        if not late or not (gives or self.by_majority):
            return []
        self.given |= late
        payload = model.tobytes()
        return [Tell(rank, Note(KIND), payload) for rank in sorted(late)]

    def hear(self, payload: bytes, length: int, sender: int, draining: bool, possible: bool) -> None:
        """Keep the model that a member sent until it may be taken. ``possible``: this worker may have come too late for
        the last round. ``MalformedMessage`` if it cannot and the run goes on, or if the model does not fit."""
        if len(payload) != 4 * length:
            raise MalformedMessage(f"a model of {len(payload)} bytes; this one has {4 * length}")
        if not possible and not draining:
            raise MalformedMessage("a final model, though the run goes on")
        if possible and self.handed is None:
            if not np.isfinite(np.frombuffer(payload, np.float32)).all():
                raise MalformedMessage("a model with numbers that are not finite")
            self.offers[sender] = payload

    def take(self, membership: Membership) -> None:
        """Take over what was offered by a member or, ``by_majority``, by more than half of those before us."""
        if self.handed is not None:
            return
        before = [rank for rank in membership.members if rank < membership.rank] or membership.others
        judges = before if self.by_majority else membership.others
        self.offers = {sender: model for sender, model in self.offers.items() if sender in judges}
        for model in self.offers.values():
            votes = sum(other == model for other in self.offers.values())
            if not self.by_majority or 2 * votes > len(judges):
                self.handed, self.offers = np.frombuffer(model, np.float32), {}
                return

    def stays(self) -> bool:
        """Return whether this worker stays in the group: the members change."""
        self.left = self.handed is not None
        return not self.left
