"""The end of a run with parameter servers: all say *end* to every server, and get its last weights, *final*, from it.

A worker says *end* when all its pushes were confirmed, so when a server has heard it from all members, every push is in
its weights. Should the server die then, some workers may have its last weights already: they send them along with their
*end* to the next server, which takes them over. So all end with the same bits.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies.api import Membership, Note, Tell
from taut.strategies.server.shard import Shard


@dataclass
class ServerEnding:
    """One worker's part, as a client and as a server. By shard: ``finals``, the last weights; ``told``, the server that
    it said *end* to; ``ends``, the workers that said *end* to it; ``answered``, those that got *final*."""

    shards: int
    membership: Membership
    finals: dict[int, bytes] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)
    ends: dict[int, set[int]] = field(default_factory=dict)
    answered: dict[int, set[int]] = field(default_factory=dict)

    def closed(self, shard: int) -> bool:
        """Return whether this server's weights are final."""
        return bool(self.answered.get(shard))

    @property
    def complete(self) -> bool:
        return len(self.finals) == self.shards

    def tell(self, holders: list[int], held: dict[int, Shard], quiet: Collection[int]) -> list[Tell]:
        """Say *end* to every server that does not know. ``quiet``: shards that contain all pushes of this worker."""
        tells: list[Tell] = []
        for shard, rank in enumerate(holders):
            if self.told.get(shard) == rank or shard not in quiet:
                continue
            self.told[shard] = rank
            known = self.finals.get(shard, b"")
            if rank == self.membership.rank:
                tells += self.ended(shard, rank, known, held[shard])
            else:
                tells.append(Tell(rank, Note("end", 0, shard), known))
        return tells

    def ended(self, shard: int, sender: int, known: bytes, held: Shard) -> list[Tell]:
        """Handle *end* at this server: ``sender`` pushes no more. ``known``: the last weights, if it has them."""
        if known:
            if len(known) != held.w.nbytes:
                raise MalformedMessage(f"{len(known)} bytes for shard {shard} of {held.w.nbytes}")
            if not self.closed(shard):
                held.w[:] = np.frombuffer(known, np.float32)
        self.ends.setdefault(shard, set()).add(sender)
        return self._answer(shard, held)

    def members_changed(self, membership: Membership, held: dict[int, Shard]) -> list[Tell]:
        """Note the new members, and answer if no *end* is missing any more."""
        self.membership = membership
        return [tell for shard, each in held.items() if self.ends.get(shard) for tell in self._answer(shard, each)]

    def _answer(self, shard: int, held: Shard) -> list[Tell]:
        """Send the weights to all workers once all have ended; later ones get the same weights."""
        ends, answered = self.ends[shard], self.answered.setdefault(shard, set())
        if not answered and not ends >= set(self.membership.members):
            return []
        last = held.w.tobytes()
        fresh = (ends & set(self.membership.members)) - answered
        answered |= fresh
        if self.membership.rank in fresh:
            self.finals.setdefault(shard, last)
        return [Tell(rank, Note("final", 0, shard), last) for rank in sorted(fresh) if rank != self.membership.rank]

    def final(self, shard: int, sender: int, payload: bytes) -> None:
        if self.told.get(shard) == sender:
            self.finals.setdefault(shard, payload)
