"""A center whose questions and answers are compressed: workers push forces, and get what has changed of the center.

    worker    f = Q(a (x - view));    asks f
    holder    c <- c + d f;           answers Q(c - the worker's view)                     ``copies.py``
    worker    x <- x - d f;           view <- view + d (the answer)

Both sides change by the same floats, so that x + c is conserved, as without a codec. What f leaves out stays in x - c,
and is in the next force; what an answer leaves out is in the next answer. A view is as old as the elements that answers
have left out; as the center moves by compressed forces only, that is a few exchanges. The first answer of a holder, and
all answers after the members changed, are whole, and so are shards that move and the end. d: ``VectorCoder.damping``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies.api import Local, Membership, Note, Tell, Vector, VectorCoder
from taut.strategies.delivery.copies import HeldCopy, SentCopies, Written
from taut.strategies.server.center import Center


@dataclass
class Force:
    """The exchange rule. ``given``: the forces of the last question, as its holders read them."""

    local: Local
    given: Vector

    def serve(self, shard: int, center: Vector, values: Vector, number: float) -> Vector:
        center += values
        return center

    def take(self, part: slice, answer: Vector, number: float) -> Vector:
        self.local.x[part] -= self.given[part]
        return answer


@dataclass
class CompressedCenter(Center):
    """One worker's side. ``coders``: one for each shard."""

    rule: Force
    coders: list[VectorCoder] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._written: dict[int, bytes] = {}  # of the last question, by shard
        self._sent = SentCopies(self.membership.rank)  # what others have of the shards that this worker holds
        self._held = [HeldCopy() for _ in range(self.shards)]  # what this worker has of those that others hold

    def push(self, alpha: float) -> list[Tell]:
        """Ask with the force towards the center, as its holders will read it."""
        given = self.rule.given
        np.subtract(self.local.x, self.view, out=given)
        given *= np.float32(alpha)
        for shard, coder in enumerate(self.coders):
            if self.holder(shard) != self.membership.rank:
                part = given[self.part(shard)]
                self._written[shard] = coder.difference(part)
                part[:] = 0.0
                coder.add(self._written[shard], part, coder.damping)
        return self.ask(given)

    def _questions(self, holder: int, shards: Sequence[int]) -> list[Tell]:
        return [
            Tell(holder, Note("ask", self.round, shard, [self._held[shard].stamp]), self._written[shard])
            for shard in shards
        ]

    def hears(self, note: Note) -> bool:
        return note.kind == "moved" or super().hears(note)

    def heard(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        if note.kind not in ("ask", "answer", "moved"):
            return super().heard(sender, note, payload)
        if len(note.numbers) != 1 or not 0 <= note.numbers[0] < 2**53 or note.part >= self.shards:
            raise MalformedMessage(f"{note.kind} for shard {note.part} of {self.shards} with the numbers {note.numbers}")
        if note.kind == "ask":
            return self._asked(sender, note, payload)
        if note.round == self.round and self.missing.get(note.part) == sender:
            sent, nbytes = (
                Written(payload, note.numbers[0], note.kind == "answer"),
                self.view[self.part(note.part)].nbytes,
            )
            self._take(note.part, note.round, self._held[note.part].read(sent, nbytes, self.coders[note.part]))
        return []

    def _asked(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        coder, center = self.coders[note.part], self.view[self.part(note.part)]
        coder.check(payload, len(center))
        if self.left:
            return []  # the sender will ask the successor
        force = np.zeros_like(center)
        coder.add(payload, force, coder.damping)
        self.rule.serve(note.part, center, force, 0.0)
        written = self._sent.write((sender, note.part), note.numbers[0], center, coder)
        kind = "answer" if written.whole else "moved"
        return [Tell(sender, Note(kind, note.round, note.part, [written.stamp]), written.payload)]

    def members_changed(self, membership: Membership) -> list[Tell]:
        self._sent.copies.clear()  # who asks next may have another view
        return super().members_changed(membership)


def compressed_center(membership: Membership, local: Local, coder: VectorCoder, shards: int) -> CompressedCenter:
    """Return a center that is the worker's vector at first."""
    made = CompressedCenter(local, membership, Force(local, np.zeros_like(local.x)), local.x.copy(), shards)
    for shard in range(made.shards):
        lo, hi, _ = made.part(shard).indices(len(local.x))
        made.coders.append(coder.part(lo, hi))
    return made
