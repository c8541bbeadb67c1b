"""A centre: one more vector, held by the workers themselves, that each of them exchanges with when it likes to.

The vector is cut into shards, and shard s lives at member number s mod p. A worker *asks*: it sends its values of every
shard to whoever holds it; the holder changes the centre and answers, at once, whatever it is doing (``concurrent``).
Nobody waits for anybody's step. What shall happen to a shard is the method's affair: see ``Rule``.

Everybody has a ``view`` of the whole centre: the truth where it holds the shard, elsewhere what it saw last. So when

- members come or go, shards move; a holder that lives hands the shard to its heir;
- a holder died, its heir goes on from its own view: what others changed since then is lost, nothing else is;
- two workers do not agree for a moment who holds a shard: whoever is asked answers from its view. Nobody is left waiting.

A worker whose answer does not come (its holder has died, or is cut off) trains on (``overlapped_round.py``): what it
asked with stays as it is, and the answer is taken at its next turn, as of what x was then; what it moved by since is
added.

At the end everybody says when it will ask no more. When all have, holders tell all others their shards, and a last round
of a ``Group`` makes sure, even if holders die meanwhile, that all have the same bits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse
from taut.strategies.allreduce.final_model import KIND, FinalModelForJoiners
from taut.strategies.allreduce.group import Group
from taut.strategies.api import Local, MemberPlace, Tell
from taut.strategies.periodic.overlapped_round import OverlappedRound, moved_aside

if TYPE_CHECKING:
    from taut.strategies.api import Vector

SHARDS = 16
KINDS = ("ask", "answer", "shard", "will", "bye", "final", KIND)


class Rule(Protocol):
    """What an exchange does."""

    @abstractmethod
    def serve(self, shard: int, centre: Vector, values: Vector, number: float) -> Vector:
        """At the holder: somebody asked with ``values``. Change ``centre`` in place; what to answer (copied at once)."""

    @abstractmethod
    def take(self, part: slice, answer: Vector, number: float) -> Vector:
        """At the one who asked: change x, which is ours; what the centre is now, as far as we can tell."""


@dataclass
class Center:
    """One worker's end. ``rule``: what an exchange does; ``shards``: how many, the same everywhere."""

    local: Local
    place: MemberPlace
    rule: Rule
    view: Vector
    shards: int = SHARDS
    round: int = 0  # how often we asked
    number: float = 0.0  # goes with our question
    missing: dict[int, int] = field(default_factory=dict)  # shards without an answer, and whom we asked
    drift: OverlappedRound = field(default_factory=OverlappedRound)
    training: bool = False  # x is the worker's own, though answers are missing
    answers: dict[int, Vector] = field(default_factory=dict)  # that came meanwhile
    # the end
    left: bool = False  # this worker goes, and its shards are with the others
    draining: bool = False
    finished: bool = False
    told: dict[str, set[int]] = field(default_factory=lambda: {"bye": set(), "final": set()})
    said: dict[str, set[int]] = field(default_factory=lambda: {"bye": set(), "final": set()})
    begun: bool = False
    late: FinalModelForJoiners = field(default_factory=FinalModelForJoiners)

    def __post_init__(self) -> None:
        self.group = Group(self.place, len(self.view))
        self._size = max(1, -(-len(self.view) // self.shards))
        self.shards = -(-len(self.view) // self._size)  # none is empty
        self._values: Vector = self.view  # what we asked with

    def part(self, shard: int) -> slice:
        return slice(shard * self._size, (shard + 1) * self._size)

    def holder(self, shard: int, place: MemberPlace | None = None) -> int:
        members = (place or self.place).members
        return members[shard % len(members)]

    def held(self) -> list[int]:
        return [shard for shard in range(self.shards) if self.holder(shard) == self.place.rank]

    # ---------------------------------------------------------------------------------------------- exchanges

    @property
    def asking(self) -> bool:
        """Whether the last exchange is not over."""
        return bool(self.missing or self.answers)

    def ask(self, values: Vector, number: float = 0.0) -> list[Tell]:
        """Exchange ``values`` with the centre. Until nothing is ``missing`` leave them as they are, or ``let_go``.

        ``number`` goes with them, to ``Rule.serve``."""
        assert not self.asking, "the last answer is not complete"
        self.round += 1
        self.number, self._values = number, values
        return self.group.introduce() + self._ask(range(self.shards))

    def _ask(self, shards: Sequence[int]) -> list[Tell]:
        by_holder: dict[int, list[int]] = {}
        for shard in shards:
            by_holder.setdefault(self.holder(shard), []).append(shard)
        for shard in by_holder.pop(self.place.rank, []):
            part = self.part(shard)
            self.missing.pop(shard, None)
            self._include(shard, self.rule.serve(shard, self.view[part], self._values[part], self.number))
        tells = []
        for holder, theirs in by_holder.items():
            self.missing.update((shard, holder) for shard in theirs)
            tells.append(self._tell(holder, "ask", theirs, self._values, self.round, self.number))
        return tells

    def let_go(self) -> None:
        """The worker trains on without the answers that are missing."""
        then = self.local.x.copy()
        if np.shares_memory(self._values, self.local.x):
            self._values = then
        self.drift.begin([then])

    def resume(self) -> None:
        """x is ours again: take what came meanwhile."""
        self.training = False
        answers, self.answers = self.answers, {}
        for shard, answer in sorted(answers.items()):
            self._include(shard, answer)

    def _include(self, shard: int, answer: Vector) -> None:
        if self.training:
            self.answers[shard] = answer.copy()
            return
        part, then = self.part(shard), self.drift.then
        with moved_aside(self.local.x[part], then[0][part]) if then is not None else nullcontext():
            centre = self.rule.take(part, answer, self.number)
        if self.holder(shard) != self.place.rank:
            self.view[part] = centre

    def _tell(
        self, to: int, kind: str, shards: Sequence[int], values: Vector, round: int = 0, number: float = 0.0
    ) -> Tell:
        payload = b"".join(values[self.part(shard)].tobytes() for shard in shards)
        return Tell(to, Note(kind, round, numbers=[number, *map(float, shards)]), payload)

    # ----------------------------------------------------------------------------------------------- messages

    def hears(self, note: Note) -> bool:
        return note.kind in KINDS or self.group.hears(note)

    def heard(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        """A message for the centre. ``MalformedMessage`` if it makes no sense; nothing has changed then."""
        if self.group.hears(note):
            return [] if self.late.left else self.group.heard(sender, note, payload)
        if note.kind == KIND:
            if sender in self.place.members and not self.finished:
                self.late.hear(payload, len(self.view), sender, self.draining, possible=not self.group.founder)
            return []
        parts = self._parts(note, payload)
        if note.kind == "ask":
            return [] if self.left else [self._answer(sender, note, parts)]  # it asks the heir when it hears of it
        for shard, values in parts:
            if note.kind == "answer":
                self._take(shard, note.round, values)
            elif (note.kind == "shard") == (self.holder(shard) == self.place.rank):
                self.view[self.part(shard)] = values
        if note.kind in self.said:
            self.said[note.kind].add(sender)
        return []

    def _take(self, shard: int, round: int, answer: Vector) -> None:
        if round != self.round or self.missing.pop(shard, None) is None:
            return  # to a question that was asked again, elsewhere
        self._include(shard, answer)

    def _answer(self, sender: int, note: Note, parts: list[tuple[int, Vector]]) -> Tell:
        number = note.numbers[0]
        answers = [
            self.rule.serve(shard, self.view[self.part(shard)], values, number).tobytes() for shard, values in parts
        ]
        return Tell(sender, Note("answer", note.round, numbers=note.numbers), b"".join(answers))

    def _parts(self, note: Note, payload: bytes) -> list[tuple[int, Vector]]:
        """The shards in a message."""
        parts: list[tuple[int, Vector]] = []
        offset = 0
        for number in note.numbers[1:]:
            if not 0 <= number < self.shards or number % 1:
                raise MalformedMessage(f"shard {number} of {self.shards}")
            part = self.part(int(number))
            nbytes = self.view[part].nbytes
            if offset + nbytes > len(payload):
                break
            parts.append((int(number), np.frombuffer(payload, np.float32, nbytes // 4, offset)))
            offset += nbytes
        if not note.numbers or len(parts) != len(note.numbers) - 1 or offset != len(payload):
            raise MalformedMessage(f"{note.kind}: {len(payload)} bytes do not make the shards {note.numbers[1:]}")
        return parts

    def leave(self) -> list[Tell]:
        """This worker goes: all get its shards as they are, for one of them will hold them."""
        self.left = True
        return [self._tell(other, "will", self.held(), self.view) for other in self.place.others]

    def placed(self, place: MemberPlace) -> list[Tell]:
        """The members changed: hand over what we no longer hold, and ask the heirs of the dead."""
        before, self.place = self.place, place
        tells = self.group.placed(place) if self.late.stays() else self.group.testify(place)
        moved: dict[int, list[int]] = {}
        for shard in range(self.shards):
            heir = self.holder(shard)
            if self.holder(shard, before) == place.rank != heir:
                moved.setdefault(heir, []).append(shard)
        tells += [self._tell(heir, "shard", shards, self.view) for heir, shards in moved.items()]
        orphans = [shard for shard, holder in self.missing.items() if holder not in place.members]
        return tells + self._ask(orphans)

    # ------------------------------------------------------------------------------------------------ the end

    def close(self) -> list[Tell]:
        """We drain: what is to be said now. Everybody must call it after every event; see ``finished``."""
        if not self.draining or self.asking:
            return []
        others = set(self.place.others)
        tells = self._say("bye", others, [])
        if self.said["bye"] >= others:
            tells += self._say("final", others, self.held())
            if self.said["final"] >= others and not self.begun and self.late.handed is None:
                self.begun = True
                self.late.began_with = self.place.members
                tells += self.group.begin(self.view)
        if not self.finished:
            self._finish()
        return tells + self.late.hand_on(self.place, self.local.x) if self.finished else tells

    def _say(self, kind: str, others: set[int], shards: list[int]) -> list[Tell]:
        fresh = sorted(others - self.told[kind])
        self.told[kind] |= others
        return [self._tell(other, kind, shards, self.view) for other in fresh]

    def _finish(self) -> None:
        if self.group.founder is False:
            self.late.take(self.place)
        if self.late.handed is not None:
            self.local.x[:] = self.late.handed
        elif self.begun and self.group.done:
            self.group.mean(self.local.x)
        else:
            return
        self.finished = True


def check_shards(name: str, shards: int) -> None:
    """``Misuse`` unless that many fit into a message's numbers."""
    if not isinstance(shards, int) or isinstance(shards, bool) or not 1 <= shards <= 60:
        raise Misuse(f"{name}: shards={shards}", "a whole number from 1 to 60", "16 serve any number of workers")
