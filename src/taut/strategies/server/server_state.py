"""What one worker keeps in a run with parameter servers (``server.py``): as a client, and for shards that it holds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.api import Heard, Local, MemberPlace
from taut.strategies.server.server_ending import ServerEnding
from taut.strategies.server.shard import Shard, Table, bounds, holder

if TYPE_CHECKING:
    from taut.strategies.api import Vector

EARLY = 4  # messages of each kind about a shard that a worker may have sent too early, for itself and for each other


@dataclass
class Pulling:
    """A pull of one shard that is under way. ``mark``: the worker's x as of the last push before it, so that the
    difference to x is what the answer does not contain. ``answer``: what came, and whose pushes are in it."""

    asked: int
    mark: Vector
    answer: Vector | None = None
    table: Table = field(default_factory=dict)


@dataclass(frozen=True)
class Pushed:
    """A push that nobody has confirmed yet: to whom it was sent."""

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
    """A worker's state. ``base``: x as of the last push, shard by shard; ``unpushed``: steps since then. ``holders``: who
    holds which shard; ``shards``: those that this worker holds itself; ``going``: members who have said that they leave,
    and hold nothing."""

    local: Local
    place: MemberPlace
    base: Vector
    holders: list[int]
    ending: ServerEnding
    unpushed: list[int]
    numbers: list[int]  # of the last push, by shard
    known: list[Table]  # by shard: whose pushes are in the weights that this worker last pulled
    fresh: set[int] = field(default_factory=set)  # shards that this worker, a newcomer, has not pulled yet
    shards: dict[int, Shard] = field(default_factory=dict)
    handed: dict[int, tuple[int, Shard]] = field(default_factory=dict)  # to whom, and nobody has said yet that it is kept
    pushing: dict[int, Pushed] = field(default_factory=dict)
    pulling: dict[int, Pulling] = field(default_factory=dict)
    early: dict[tuple[int, str, int, int], Heard] = field(default_factory=dict)
    going: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)  # who said so, and is gone
    told: set[int] = field(default_factory=set)  # that this worker leaves
    steps: int = 0
    rate: float = 0.0
    greeted: bool = False
    leaving: bool = False
    draining: bool = False
    finished: bool = False
    pushes: int = 0
    pulls: int = 0
    elections: int = 0

    def part(self, shard: int) -> slice:
        """Its elements of x."""
        return bounds(shard, len(self.holders), len(self.local.x))

    def nbytes(self, shard: int) -> int:
        return int(self.base[self.part(shard)].nbytes)

    def entitled(self, shard: int, members: Collection[int]) -> int:
        """Who is to hold a shard: nobody who leaves, unless all do."""
        staying = [rank for rank in sorted(members) if rank not in self.going]
        return holder(shard, len(self.holders), staying or sorted(members))

    def blank(self, shard: int) -> bool:
        """This worker is to hold it, and has nothing of it yet."""
        return shard in self.shards and self.shards[shard].blank

    def keep_early(self, event: Heard, origin: int) -> None:
        """For when this worker has been told what the sender knows. Of each kind only the last is of any use."""
        self.early[(event.sender, event.note.kind, event.note.part, origin)] = event
        most = EARLY * len(self.holders) * (1 + len(self.place.members))
        if sum(key[0] == event.sender for key in self.early) > most:
            del self.early[(event.sender, event.note.kind, event.note.part, origin)]
            raise MalformedMessage(f"more than {most} messages for members that nobody knows of")
