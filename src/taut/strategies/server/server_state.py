"""One worker's state in a run with parameter servers (``server.py``): as a client, and for the shards that it holds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies.api import Heard, Local, Membership, Note, Vector, VectorCoder
from taut.strategies.delivery.copies import HeldCopy
from taut.strategies.server.server_ending import ServerEnding
from taut.strategies.server.shard import Shard, Table, bounds, holder

EARLY = 4  # early messages of each kind, sender, origin and shard that are kept


@dataclass
class Pulling:
    """A pull of one shard that is under way. ``mark``: x as of the last push before it; the answer does not contain x
    - mark. ``answer``: the weights that came; ``table``: the pushes in them."""

    asked: int
    mark: Vector
    answer: Vector | None = None
    table: Table = field(default_factory=dict)


@dataclass(frozen=True)
class Pushed:
    """An unconfirmed push to worker ``to``."""

    to: int
    note: Note
    payload: bytes

    @property
    def number(self) -> int:
        return int(self.note.numbers[1])

    @property
    def again(self) -> bool:
        return bool(self.note.numbers[3])


@dataclass
class ServerState:
    """A worker's state. ``base``: x as of the last push, shard by shard; ``unpushed``: steps since then. ``holders``: the
    holder of each shard; ``shards``: those that this worker holds; ``going``: members that said *going* and hold none."""

    local: Local
    membership: Membership
    base: Vector
    holders: list[int]
    ending: ServerEnding
    unpushed: list[int]
    numbers: list[int]  # of the last push, by shard
    known: list[Table]  # by shard: the pushes in the weights that this worker last pulled
    fresh: set[int] = field(default_factory=set)  # shards that this worker, a newcomer, has not pulled yet
    shards: dict[int, Shard] = field(default_factory=dict)
    handed: dict[int, tuple[int, Shard]] = field(default_factory=dict)  # (receiver, shard): not *kept* yet
    pushing: dict[int, Pushed] = field(default_factory=dict)
    pulling: dict[int, Pulling] = field(default_factory=dict)
    early: dict[tuple[int, str, int, int], Heard] = field(default_factory=dict)
    going: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)  # workers that said *going*, and are gone
    told: set[int] = field(default_factory=set)  # workers that were told *going*
    steps: int = 0
    rate: float = 0.0
    greeted: bool = False
    leaving: bool = False
    draining: bool = False
    finished: bool = False
    pushes: int = 0
    pulls: int = 0
    elections: int = 0
    coders: list[VectorCoder] = field(default_factory=list)  # by shard, where messages are compressed
    pulled: dict[int, HeldCopy] = field(default_factory=dict)  # by shard: the last answer, where they are

    def part(self, shard: int) -> slice:
        return bounds(shard, len(self.holders), len(self.local.x))

    def nbytes(self, shard: int) -> int:
        return int(self.base[self.part(shard)].nbytes)

    def change(self, shard: int, payload: bytes) -> Vector:
        """Return the change that a push stands for."""
        if not self.coders:
            return np.frombuffer(payload, np.float32)
        change: Vector = np.zeros_like(self.base[self.part(shard)])
        self.coders[shard].add(payload, change, self.coders[shard].damping)
        return change

    def check_nbytes(self, event: Heard) -> None:
        """Raise ``MalformedMessage`` unless the payload is as long as the shard."""
        shard = event.note.part
        if len(event.payload) != self.nbytes(shard):
            raise MalformedMessage(f"{len(event.payload)} bytes for shard {shard} of {self.nbytes(shard)}")

    def entitled(self, shard: int, members: Collection[int]) -> int:
        """Return the worker that is to hold a shard; no leaving one, unless all leave."""
        staying = [rank for rank in sorted(members) if rank not in self.going]
        return holder(shard, len(self.holders), staying or sorted(members))

    def check_finite(self, payload: bytes) -> None:
        """Raise ``MalformedMessage`` if weights are not finite, where a codec must write them."""
        if self.coders and not len(payload) % 4 and not np.isfinite(np.frombuffer(payload, np.float32)).all():
            raise MalformedMessage("weights that are not finite")

    def blank(self, shard: int) -> bool:
        """Return whether this worker is to hold the shard, and has no weights for it yet."""
        return shard in self.shards and self.shards[shard].blank

    def keep_early(self, event: Heard, origin: int) -> None:
        """Keep a message until this worker has heard what its sender knows. The last of each kind replaces the others."""
        self.early[(event.sender, event.note.kind, event.note.part, origin)] = event
        most = EARLY * len(self.holders) * (1 + len(self.membership.members))
        if sum(key[0] == event.sender for key in self.early) > most:
            del self.early[(event.sender, event.note.kind, event.note.part, origin)]
            raise MalformedMessage(f"more than {most} messages for unknown members")
