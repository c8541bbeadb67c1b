"""A relay that comes back: which of its last messages did arrive?

What a worker that was given up had sent and nobody had confirmed may have been taken, or not; to publish it again would
count it twice, to forget it would lose it. Who was to take it knows the last message that it took (``Crossings.taken``),
and nothing came after the worker was given up. So the worker, under its next rank, asks:

    took? (former rank, receiver, tree, number)        taken | missed | unknown (neither that receiver, nor ever was)

*taken* ends the doubt, *missed* has it published, once. Where the receiver is gone, too, everybody is asked, for it may
have come back under another rank, and so is whoever comes later. What nobody can tell when the run ends is published
then: it counts once at least, twice if that receiver had passed it on before it died.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.api import Heard, Tell
from taut.strategies.tree.edge_messages import EdgeMessage

TOOK, TAKEN, MISSED, UNKNOWN = KINDS = ("took?", "taken", "missed", "unknown")
MOST_FORMER = 16  # places that one worker had before
Taken = dict[int, dict[int, int]]


@dataclass
class UnacknowledgedEdge:
    """Worker ``rank`` sent ``crossing`` to ``hop``, and was given up before that was confirmed."""

    rank: int
    hop: int
    crossing: EdgeMessage
    asked: set[int] = field(default_factory=set)
    awaited: set[int] = field(default_factory=set)

    @property
    def name(self) -> tuple[int, int, int, int]:
        return self.rank, self.hop, self.crossing.number, self.crossing.key


@dataclass(frozen=True)
class Unsent:
    """What worker ``rank``, when it was given up, had not got across: ``waiting`` was never sent, ``doubtful`` was, and
    not confirmed. ``taken``: what it had taken itself; ``former``: the same of its places before."""

    rank: int
    waiting: list[bytes]
    doubtful: list[UnacknowledgedEdge]
    taken: Taken
    former: dict[int, Taken]


@dataclass
class UnacknowledgedMessages:
    """One worker's. ``former``: what it had taken at its places before, by rank."""

    open: list[UnacknowledgedEdge] = field(default_factory=list)
    former: dict[int, Taken] = field(default_factory=dict)

    def bring(self, unsent: Unsent) -> None:
        """From a former place."""
        self.open += [UnacknowledgedEdge(each.rank, each.hop, each.crossing) for each in unsent.doubtful]
        self.former |= unsent.former | {unsent.rank: unsent.taken}
        for rank in list(self.former)[:-MOST_FORMER]:
            del self.former[rank]

    def ask(self, others: Iterable[int]) -> list[Tell]:
        """Who has not been asked yet, and might know."""
        tells, others = [], set(others)
        for doubt in self.open:
            doubt.awaited &= others
            for other in sorted(({doubt.hop} & others or others) - doubt.asked):
                doubt.asked.add(other)
                doubt.awaited.add(other)
                numbers = [float(doubt.rank), float(doubt.hop), float(doubt.crossing.number)]
                tells.append(Tell(other, Note(TOOK, doubt.crossing.key, 0, numbers)))
        return tells

    def answer(self, event: Heard, rank: int, taken: Taken) -> Tell:
        """Another worker's question. ``rank`` and ``taken``: of this place."""
        asker, hop, number = _numbers(event.note)
        known = taken if hop == rank else self.former.get(hop)
        kind = UNKNOWN
        if known is not None:
            kind = TAKEN if known.get(asker, {}).get(event.note.round, 0) >= number else MISSED
        return Tell(event.sender, Note(kind, event.note.round, 0, event.note.numbers))

    def answered(self, event: Heard) -> EdgeMessage | None:
        """An answer to ours: what is to be published."""
        name = (*_numbers(event.note), event.note.round)
        doubt = next((one for one in self.open if one.name == name and event.sender in one.awaited), None)
        if doubt is None:
            return None
        doubt.awaited.discard(event.sender)
        if event.note.kind == UNKNOWN:
            return None
        self.open.remove(doubt)
        return doubt.crossing if event.note.kind == MISSED else None

    def end(self) -> list[EdgeMessage]:
        """The run ends: what nobody is left to tell."""
        over = [doubt for doubt in self.open if not doubt.awaited]
        self.open = [doubt for doubt in self.open if doubt.awaited]
        return [doubt.crossing for doubt in over]


def _numbers(note: Note) -> tuple[int, int, int]:
    if len(note.numbers) != 3 or not all(0 <= each < 2**53 and each == int(each) for each in note.numbers):
        raise MalformedMessage(f"{note.kind!r} without the message that it is about")
    first, second, third = map(int, note.numbers)
    return first, second, third
