"""What a worker that leaves has not sent yet goes to one of the others, exactly once.

    leaver: *residual* (a part of what it keeps)    receiver: *inherited* (it waits here now) or *declined* (I leave, too)

Parts are independent of each other. The leaver keeps each until somebody has taken it: when a receiver declines, or is
gone without an answer, the next one is asked. A receiver that took a part answers before it leaves itself, so a part is
in one place only: with the leaver until the answer, then with the receiver. Only who dies takes something away.

    what all have accumulated = what was sent + what is left over all who are there,        across every leave
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from taut.errors import MalformedMessage
from taut.strategies.api import Note, Tell

RESIDUAL, INHERITED, DECLINED = KINDS = ("residual", "inherited", "declined")


class ResidualHandoff:
    """One worker's part in it. ``take`` makes a part one's own; it raises ``MalformedMessage`` where that cannot be.

    >>> taken = []
    >>> leaver, receiver = ResidualHandoff(lambda part: None), ResidualHandoff(taken.append)
    >>> [tell] = leaver.leave([b"what is left"], receivers=[1])
    >>> [answer] = receiver.heard(0, tell.note, tell.payload)
    >>> leaver.done, leaver.heard(1, answer.note, answer.payload), leaver.done, taken
    (False, [], True, [b'what is left'])
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._parts: dict[int, bytes] = {}  # by number: handed over, and not answered yet
        self._receivers: list[int] = []  # whom to ask, the first one now
        self._declined: set[int] = set()
        self._leaving = False

    @property
    def done(self) -> bool:
        """Return whether nothing is left with this worker, or there is no worker to take it."""
        return not self._parts or not self._receivers

    def leave(self, parts: Iterable[bytes], receivers: Sequence[int]) -> list[Tell]:
        """Hand ``parts`` over: this worker goes. ``receivers``: the others, in the order in which to ask them."""
        self._leaving = True
        self._receivers = list(receivers)
        self._parts = dict(enumerate(parts))
        return self._ask()

    def heard(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        """Take one of the messages of ``KINDS``."""
        if note.kind == RESIDUAL:
            if not self._leaving:
                self._take(payload)
            return [Tell(sender, Note(DECLINED if self._leaving else INHERITED, note.round))]
        if sender in self._declined and note.kind == DECLINED:
            return []  # the next part: they were handed over together
        if self._receivers[:1] != [sender] or note.round not in self._parts:
            raise MalformedMessage(f"{note.kind!r} for a part of ours that worker {sender} was not given")
        if note.kind == INHERITED:
            del self._parts[note.round]
            return []
        self._declined.add(sender)
        return self._without({sender})

    def members_changed(self, members: Iterable[int]) -> list[Tell]:
        """Ask the next worker if the one that was asked is gone. Its last messages must have been heard before."""
        return self._without(set(self._receivers) - set(members))

    def _without(self, gone: set[int]) -> list[Tell]:
        asked = self._receivers[:1]
        self._receivers = [rank for rank in self._receivers if rank not in gone]
        return self._ask() if self._receivers[:1] != asked else []

    def _ask(self) -> list[Tell]:
        receivers = self._receivers[:1]
        return [
            Tell(receiver, Note(RESIDUAL, number), part) for receiver in receivers for number, part in self._parts.items()
        ]
