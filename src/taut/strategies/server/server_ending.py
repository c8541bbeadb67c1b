"""The end of a run with parameter servers: all say *end* to every server, and get its last weights, *final*, from it.

A worker says *end* when all its pushes were confirmed, so when a server has heard it from all members, every push is in
its weights. Should it die then, some may have its last weights already and others not: who has them sends them along with
its *end* to the server that follows, which takes them over. So whatever happens, all end with the same bits.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.api import MemberPlace, Tell
from taut.strategies.server.shard import Shard


@dataclass
class ServerEnding:
    """One worker's part, as a client and as a server. ``finals``: the last weights, per shard, once they are known;
    ``told``: to whom *end* was said, per shard; ``ends``: who said it to this server, and who was answered."""

    shards: int
    place: MemberPlace
    finals: dict[int, bytes] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)
    ends: dict[int, set[int]] = field(default_factory=dict)
    answered: dict[int, set[int]] = field(default_factory=dict)

    def closed(self, shard: int) -> bool:
        """This server's weights are final."""
        return bool(self.answered.get(shard))

    @property
    def complete(self) -> bool:
        """All last weights are here."""
        return len(self.finals) == self.shards

    def tell(self, holders: list[int], held: dict[int, Shard], quiet: Collection[int]) -> list[Tell]:
        """This worker has ended: say so to every server that does not know. ``quiet``: shards with all its pushes."""
        tells: list[Tell] = []
        for shard, rank in enumerate(holders):
            if self.told.get(shard) == rank or shard not in quiet:
                continue
            self.told[shard] = rank
            known = self.finals.get(shard, b"")
            if rank == self.place.rank:
                tells += self.ended(shard, rank, known, held[shard])
            else:
                tells.append(Tell(rank, Note("end", 0, shard), known))
        return tells

    def ended(self, shard: int, sender: int, known: bytes, held: Shard) -> list[Tell]:
        """To this server: ``sender`` pushes no more, and has the last weights already if ``known``."""
        if known:
            if len(known) != held.w.nbytes:
                raise MalformedMessage(f"{len(known)} bytes for shard {shard} of {held.w.nbytes}")
            if not self.closed(shard):
                held.w[:] = np.frombuffer(known, np.float32)
        self.ends.setdefault(shard, set()).add(sender)
        return self._answer(shard, held)

    def placed(self, place: MemberPlace, held: dict[int, Shard]) -> list[Tell]:
        """Others are here: perhaps nobody is missing any more."""
        self.place = place
        return [tell for shard, each in held.items() if self.ends.get(shard) for tell in self._answer(shard, each)]

    def _answer(self, shard: int, held: Shard) -> list[Tell]:
        """Once all have ended, everybody gets the weights; who comes later gets the same."""
        ends, answered = self.ends[shard], self.answered.setdefault(shard, set())
        if not answered and not ends >= set(self.place.members):
            return []
        last = held.w.tobytes()
        fresh = (ends & set(self.place.members)) - answered
        answered |= fresh
        if self.place.rank in fresh:
            self.finals.setdefault(shard, last)
        return [Tell(rank, Note("final", 0, shard), last) for rank in sorted(fresh) if rank != self.place.rank]

    def final(self, shard: int, sender: int, payload: bytes) -> None:
        """From a server: its last weights."""
        if self.told.get(shard) == sender:
            self.finals.setdefault(shard, payload)
