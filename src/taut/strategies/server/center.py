"""The center: one more vector, held by the workers themselves, that each of them exchanges with at its own pace.

The vector is cut into shards, and shard s is held by member number s mod p. A worker *asks*: it sends its values of every
shard to the holder; the holder changes the center and answers, at once, also while it trains (``concurrent``). No worker
waits for another's step. The method defines how an exchange changes a shard: see ``Rule``.

Each worker has a ``view`` of the whole center: current for shards that it holds, otherwise as of its last exchange. So

- when members come or go, shards move: a living holder sends the shard to its successor;
- when a holder died, its successor goes on from its own view: only others' changes since that view are lost;
- while two workers disagree about a holder, the one that is asked answers from its view. No worker is left waiting.

A worker whose answer does not come (its holder has died, or is cut off) trains on (``overlapped_round.py``): its question
stays as it is, the answer is applied at its next turn, to x as it was then, and its steps since are added.

At the end each worker says that it will ask no more. When all have, holders send all others their shards, and a last
round of a ``Group`` makes sure that all have the same bits, even if holders die meanwhile.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies.allreduce.final_model import KIND, FinalModelForJoiners
from taut.strategies.allreduce.group import Group
from taut.strategies.api import Local, Membership, Note, Tell, Vector
from taut.strategies.periodic.overlapped_round import OverlappedRound, moved_aside

SHARDS = 16
MOST_SHARDS = 60  # that fit into a message's numbers
KINDS = ("ask", "answer", "shard", "will", "bye", "final", KIND)


class Rule(Protocol):
    """The effect of an exchange."""

    @abstractmethod
    def serve(self, shard: int, center: Vector, values: Vector, number: float) -> Vector:
        """Change ``center`` in place at its holder for a question, and return the answer (copied at once)."""

    @abstractmethod
    def take(self, part: slice, answer: Vector, number: float) -> Vector:
        """Change x at the worker that asked, and return its new view of the center."""


@dataclass
class Center:
    """One worker's side of the center. ``rule``: the effect of an exchange; ``shards``: as many everywhere."""

    local: Local
    membership: Membership
    rule: Rule
    view: Vector
    shards: int = SHARDS
    round: int = 0  # number of questions so far
    number: float = 0.0  # sent with the question
    missing: dict[int, int] = field(default_factory=dict)  # shards without an answer: the holder that was asked
    drift: OverlappedRound = field(default_factory=OverlappedRound)
    training: bool = False  # the worker trains on although answers are missing
    answers: dict[int, Vector] = field(default_factory=dict)  # answers that came while it trained
    left: bool = False  # this worker leaves, and the others have its shards
    draining: bool = False
    finished: bool = False
    told: dict[str, set[int]] = field(default_factory=lambda: {"bye": set(), "final": set()})
    said: dict[str, set[int]] = field(default_factory=lambda: {"bye": set(), "final": set()})
    begun: bool = False
    late: FinalModelForJoiners = field(default_factory=FinalModelForJoiners)

    def __post_init__(self) -> None:
        self.group = Group(self.membership, len(self.view))
        self._size = max(1, -(-len(self.view) // self.shards))
        self.shards = -(-len(self.view) // self._size)  # none is empty
        self._values: Vector = self.view  # of the last question

    def part(self, shard: int) -> slice:
        return slice(shard * self._size, (shard + 1) * self._size)

    def holder(self, shard: int, membership: Membership | None = None) -> int:
        members = (membership or self.membership).members
        return members[shard % len(members)]

    def held(self) -> list[int]:
        return [shard for shard in range(self.shards) if self.holder(shard) == self.membership.rank]

    # Exchanges.

    @property
    def asking(self) -> bool:
        """Return whether the last exchange is not over."""
        return bool(self.missing or self.answers)

    def ask(self, values: Vector, number: float = 0.0) -> list[Tell]:
        """Exchange ``values`` with the center. Until nothing is ``missing`` leave them as they are, or ``let_go``.

        ``number`` goes with them, to ``Rule.serve``."""
        assert not self.asking, "the last answer is not complete"
        self.round += 1
        self.number, self._values = number, values
        return self.group.introduce() + self._ask(range(self.shards))

    def _ask(self, shards: Sequence[int]) -> list[Tell]:
        by_holder: dict[int, list[int]] = {}
        for shard in shards:
            by_holder.setdefault(self.holder(shard), []).append(shard)
        for shard in by_holder.pop(self.membership.rank, []):
            part = self.part(shard)
            self.missing.pop(shard, None)
            self._include(shard, self.rule.serve(shard, self.view[part], self._values[part], self.number))
        tells = []
        for holder, theirs in by_holder.items():
            self.missing.update((shard, holder) for shard in theirs)
            tells += self._questions(holder, theirs)
        return tells

    def _questions(self, holder: int, shards: Sequence[int]) -> list[Tell]:
        return [self._tell(holder, "ask", shards, self._values, self.round, self.number)]

    def let_go(self) -> None:
        """Let the worker train on without the missing answers."""
        then = self.local.x.copy()
        if np.shares_memory(self._values, self.local.x):
            self._values = then
        self.drift.begin([then])

    def resume(self) -> None:
        """Apply the answers that came while the worker trained."""
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
            center = self.rule.take(part, answer, self.number)
        if self.holder(shard) != self.membership.rank:
            self.view[part] = center

    def _tell(
        self, to: int, kind: str, shards: Sequence[int], values: Vector, round: int = 0, number: float = 0.0
    ) -> Tell:
        payload = b"".join(values[self.part(shard)].tobytes() for shard in shards)
        return Tell(to, Note(kind, round, numbers=[number, *map(float, shards)]), payload)

    # Messages.

    def hears(self, note: Note) -> bool:
        return note.kind in KINDS or self.group.hears(note)

    def heard(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        """Handle a message for the center. Raise ``MalformedMessage`` without any change if it makes no sense."""
        if self.group.hears(note):
            return [] if self.late.left else self.group.heard(sender, note, payload)
        if note.kind == KIND:
            if sender in self.membership.members and not self.finished:
                self.late.hear(payload, len(self.view), sender, self.draining, possible=not self.group.founder)
            return []
        parts = self._parts(note, payload)
        if note.kind == "ask":
            return [] if self.left else [self._answer(sender, note, parts)]  # the sender will ask the successor
        for shard, values in parts:
            if note.kind == "answer":
                self._take(shard, note.round, values)
            elif (note.kind == "shard") == (self.holder(shard) == self.membership.rank):
                self.view[self.part(shard)] = values
        if note.kind in self.said:
            self.said[note.kind].add(sender)
        return []

    def _take(self, shard: int, round: int, answer: Vector) -> None:
        if round != self.round or self.missing.pop(shard, None) is None:
            return  # to an earlier question, or one that was asked again elsewhere
        self._include(shard, answer)

    def _answer(self, sender: int, note: Note, parts: list[tuple[int, Vector]]) -> Tell:
        number = note.numbers[0]
        answers = [
            self.rule.serve(shard, self.view[self.part(shard)], values, number).tobytes() for shard, values in parts
        ]
        return Tell(sender, Note("answer", note.round, numbers=note.numbers), b"".join(answers))

    def _parts(self, note: Note, payload: bytes) -> list[tuple[int, Vector]]:
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
        """Send this worker's shards to all others, one of which will hold them."""
        self.left = True
        return [self._tell(other, "will", self.held(), self.view) for other in self.membership.others]

    def members_changed(self, membership: Membership) -> list[Tell]:
        """Note the new members: send shards to their new holders, and ask the successors of dead holders."""
        before, self.membership = self.membership, membership
        tells = self.group.members_changed(membership) if self.late.stays() else self.group.testify(membership)
        moved: dict[int, list[int]] = {}
        for shard in range(self.shards):
            successor = self.holder(shard)
            if self.holder(shard, before) == membership.rank != successor:
                moved.setdefault(successor, []).append(shard)
        tells += [self._tell(successor, "shard", shards, self.view) for successor, shards in moved.items()]
        orphans = [shard for shard, holder in self.missing.items() if holder not in membership.members]
        return tells + self._ask(orphans)

    # The end.

    def close(self) -> list[Tell]:
        """Return the messages of the end, while this worker drains. To be called after every event; see ``finished``."""
        if not self.draining or self.asking:
            return []
        others = set(self.membership.others)
        tells = self._say("bye", others, [])
        if self.said["bye"] >= others:
            tells += self._say("final", others, self.held())
            if self.said["final"] >= others and not self.begun and self.late.handed is None:
                self.begun = True
                self.late.began_with = self.membership.members
                tells += self.group.begin(self.view)
        if not self.finished:
            self._finish()
        return tells + self.late.hand_on(self.membership, self.local.x) if self.finished else tells

    def _say(self, kind: str, others: set[int], shards: list[int]) -> list[Tell]:
        fresh = sorted(others - self.told[kind])
        self.told[kind] |= others
        return [self._tell(other, kind, shards, self.view) for other in fresh]

    def _finish(self) -> None:
        if self.group.founder is False:
            self.late.take(self.membership)
        if self.late.handed is not None:
            self.local.x[:] = self.late.handed
        elif self.begun and self.group.done:
            self.group.mean(self.local.x)
        else:
            return
        self.finished = True
