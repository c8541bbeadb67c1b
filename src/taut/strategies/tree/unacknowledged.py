"""Find out, after a relay rejoins, which of its unacknowledged messages had arrived.

A message that an evicted worker had sent without an acknowledgement may have been taken, or not. To publish it again
could count it twice; to forget it could lose it. Its receiver knows the last message that it took
(``EdgeMessages.taken``), and took none after the eviction. So the worker, under its new rank, asks:

    took? (previous rank, receiver, tree, number)      taken | missed | unknown (never was that receiver)

After *taken* the message is dropped, after *missed* it is published. If the receiver is gone, too, all workers are asked,
now and when they join, for the receiver may have rejoined under another rank. A message that is still open when the run
ends is published then: it counts at least once, and twice if the receiver had passed it on before it died.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from taut.errors import MalformedMessage
from taut.strategies.api import Heard, Note, Tell
from taut.strategies.tree.edge_messages import EdgeMessage

TOOK, TAKEN, MISSED, UNKNOWN = KINDS = ("took?", "taken", "missed", "unknown")
MOST_PREVIOUS = 16  # previous ranks of one worker
Taken = dict[int, dict[int, int]]


@dataclass
class UnacknowledgedEdge:
    """A message that worker ``rank`` sent to ``receiver``, and that was unacknowledged when ``rank`` was evicted."""

    rank: int
    receiver: int
    message: EdgeMessage
    asked: set[int] = field(default_factory=set)
    awaited: set[int] = field(default_factory=set)

    @property
    def name(self) -> tuple[int, int, int, int]:
        return self.rank, self.receiver, self.message.number, self.message.key


@dataclass(frozen=True)
class Unsent:
    """Updates that had not crossed the edge when worker ``rank`` was evicted: ``waiting`` were never sent,
    ``doubtful`` never acknowledged. ``taken``: messages that it had taken; ``previous``: those of earlier ranks."""

    rank: int
    waiting: list[bytes]
    doubtful: list[UnacknowledgedEdge]
    taken: Taken
    previous: dict[int, Taken]


@dataclass
class UnacknowledgedMessages:
    """One worker's open messages. ``previous``: the messages that it had taken under its earlier ranks, by rank."""

    open: list[UnacknowledgedEdge] = field(default_factory=list)
    previous: dict[int, Taken] = field(default_factory=dict)

    def bring(self, unsent: Unsent) -> None:
        """Add the messages from an earlier rank."""
        self.open += [UnacknowledgedEdge(each.rank, each.receiver, each.message) for each in unsent.doubtful]
        self.previous |= unsent.previous | {unsent.rank: unsent.taken}
        for rank in list(self.previous)[:-MOST_PREVIOUS]:
            del self.previous[rank]

    def ask(self, others: Iterable[int]) -> list[Tell]:
        """Ask the workers that may know and have not been asked."""
        tells, others = [], set(others)
        for edge in self.open:
            edge.awaited &= others
            for other in sorted(({edge.receiver} & others or others) - edge.asked):
                edge.asked.add(other)
                edge.awaited.add(other)
                numbers = [float(edge.rank), float(edge.receiver), float(edge.message.number)]
                tells.append(Tell(other, Note(TOOK, edge.message.key, 0, numbers)))
        return tells

    def answer(self, event: Heard, rank: int, taken: Taken) -> Tell:
        """Answer another worker's question. ``rank`` and ``taken`` are those of the present rank."""
        asker, receiver, number = _numbers(event.note)
        known = taken if receiver == rank else self.previous.get(receiver)
        kind = UNKNOWN
        if known is not None:
            kind = TAKEN if known.get(asker, {}).get(event.note.round, 0) >= number else MISSED
        return Tell(event.sender, Note(kind, event.note.round, 0, event.note.numbers))

    def answered(self, event: Heard) -> EdgeMessage | None:
        """Handle an answer to our question. Return the message if it is to be published."""
        name = (*_numbers(event.note), event.note.round)
        edge = next((one for one in self.open if one.name == name and event.sender in one.awaited), None)
        if edge is None:
            return None
        edge.awaited.discard(event.sender)
        if event.note.kind == UNKNOWN:
            return None
        self.open.remove(edge)
        return edge.message if event.note.kind == MISSED else None

    def end(self) -> list[EdgeMessage]:
        """Give up, and return, the messages of which no worker is left to tell: the run ends."""
        over = [edge for edge in self.open if not edge.awaited]
        self.open = [edge for edge in self.open if edge.awaited]
        return [edge.message for edge in over]


def _numbers(note: Note) -> tuple[int, int, int]:
    if len(note.numbers) != 3 or not all(0 <= each < 2**53 and each == int(each) for each in note.numbers):
        raise MalformedMessage(f"{note.kind!r} without the message that it is about")
    first, second, third = map(int, note.numbers)
    return first, second, third
