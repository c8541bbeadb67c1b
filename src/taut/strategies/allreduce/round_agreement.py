"""Members who tell each other where they stand when the membership changes: the base of ``Group`` and ``BackupGroup``.

Everything is said under one version of the membership. When that changes, what was said under the old one is void, and
every member tells every other the last round that it has (its *stand*). Once all stands of the version are in, all know
the same and act alike (``_agree``). Changes may come in quick succession, and members learn of them at different times:
only the latest version counts, and what comes for a later one than ours is kept until we learn of it.

Where rounds change what a member carries with it (``since``: weights and the optimizer's state, under ``sync``), who
comes in mid-run is *bare*: it has the state after no round, or after one that is not the last. It takes no part before it
has been given that state by one of those who have it (``state_transfer.py``), and as no round is complete without it,
they still have it when it asks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taut.errors import MalformedMessage, Misuse
from taut.strategies.api import MemberPlace, Note, Refuse, Tell, Vector

NEW = -1  # the stand of who has not taken part in any version yet


@dataclass(frozen=True, slots=True)
class MemberRound:
    """The last completed round of a member. If ``hollow``, the member joined after it and has no result of its own."""

    round: int
    hollow: bool


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a member gives to the round that it is in; kept until that is complete, for it may have to be run again.
    ``numbers``: the weight, whether the member is ending, 1, and what else is to be summed."""

    values: Vector
    weight: float
    numbers: Sequence[float]
    kept: bool = False  # by the caller of ``begin``: ``values`` stay as they are


class RoundMachine(ABC):
    """One member's part in rounds that average vectors: ``begin``, then ``done``, then ``mean``, then ``begin`` again.

    ``length``: of the vectors; ``lane``: tells machines of the same workers apart. Of the round that is ``done``:
    ``contributors`` and ``ending`` count members, ``extra`` are the sums of what was given beside the vectors.
    """

    bare = False  # the member lacks the state that the others have
    settled = False  # all members know the same of each other: a round can be run
    founder: bool | None = True  # no round was complete when the member came; None while that is not known
    _result: Vector | None = None  # of the round that is done: the sum, its weight, and all other numbers

    def __init__(self, length: int, lane: int = 0) -> None:
        self.length, self.lane = length, lane
        self.done = False
        self.contributors = self.ending = 0
        self.extra: list[float] = []

    @property
    @abstractmethod
    def completed(self) -> int:
        """Return the number of the last round that is complete here."""

    def begin(
        self, values: Vector, weight: float = 1.0, ending: bool = False, extra: Sequence[float] = (), keeps: bool = False
    ) -> list[Tell]:
        """Join the next round with ``weight`` * ``values``. ``extra``: numbers to be summed, everywhere as many.
        ``keeps``: the caller leaves ``values`` as they are until the round is ``done``; else they are copied."""
        if len(values) != self.length:
            raise Misuse(f"a vector of {len(values)} elements", f"{self.length}, the length of this group's vectors")
        self.done = False
        return self._begin(Contribution(values, weight, (weight, float(ending), 1.0, *extra), keeps))

    @abstractmethod
    def _begin(self, mine: Contribution) -> list[Tell]: ...

    @abstractmethod
    def hears(self, note: Note) -> bool:
        """Return whether a message is for this machine."""

    @abstractmethod
    def heard(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        """Take a member's message. Raise ``MalformedMessage`` if it makes no sense; nothing has changed then."""

    @abstractmethod
    def placed(self, place: MemberPlace) -> list[Tell]:
        """Go on with other members."""

    def refused(self) -> list[Refuse]:
        """Return what was refused since the last call, though the round goes on without it."""
        return []

    @property
    def finite(self) -> bool:
        """Whether every element of the finished round's sum is finite."""
        assert self._result is not None, "no round is done"
        return bool(np.isfinite(self._result).all())

    def mean(self, out: Vector) -> float:
        """Write the mean of the round that is ``done`` to ``out`` and return the total weight. If 0, ``out`` stays."""
        assert self._result is not None, "no round is done"
        total = float(self._result[self.length])
        if total:
            np.divide(self._result[: self.length], np.float32(total), out=out)
        return total

    def _finish(self, result: Vector) -> None:
        """Set what is known of the round that is done."""
        self._result, self.done = result, True
        ending, contributors, *self.extra = result[self.length + 1 :].tolist()
        self.ending, self.contributors = round(ending), round(contributors)


class RoundAgreement(RoundMachine):
    """One member's machine. ``kinds``: its messages and how many numbers go with each, the version first; ``stands_as``:
    the kind that tells a stand; ``lane``: tells machines of the same workers apart. ``since``: the round after which the
    member's state is, NEW if it has none yet; None where rounds stand for themselves."""

    kinds: ClassVar[Mapping[str, int]]
    stands_as: ClassVar[str]

    def __init__(self, place: MemberPlace, length: int, lane: int = 0, since: int | None = None) -> None:
        super().__init__(length, lane)
        self.place = place
        self.stand = MemberRound(NEW if since is None else since, True)
        self.carries = since is not None
        self.bare = since == NEW
        self._counted = False  # a version was agreed on in which it had the state: it has taken part since
        self.givers: list[int] = []  # while it is bare: who has what it lacks, the first to be asked first
        # Whether nobody had completed a round when all stands were in for the first time; None before that. No round can
        # be completed without this member from then on, so it never comes too late for the last one.
        self.founder = None
        self._stood = False  # and ours is told
        self._stands: dict[int, dict[int, MemberRound]] = {}  # of this version and of later ones
        self._early: list[tuple[int, Note, bytes]] = []

    @abstractmethod
    def _agree(self, stands: Mapping[int, MemberRound]) -> list[Tell]:
        """Act on all members' stands, which are in."""

    @abstractmethod
    def _take(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        """Take a member's message under this version, which is settled."""

    def hears(self, note: Note) -> bool:
        return note.kind in self.kinds and note.part == self.lane

    def heard(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        version = self._version(note)
        if version < self.place.version:
            return []  # nobody counts on what was said under a version that is over
        if note.kind == self.stands_as:
            self._stands.setdefault(version, {})[sender] = MemberRound(note.round - 1, bool(note.numbers[1]))
            return self._take_stand() + self._settle()
        tells = self._take_stand()
        if version > self.place.version or not self.settled:
            self._early.append((sender, note, payload))
            return tells
        if sender not in self.place.members:
            raise MalformedMessage(f"{note.kind} of worker {sender}, which is not in the group")
        return tells + self._take(sender, note, payload)

    def placed(self, place: MemberPlace) -> list[Tell]:
        if place.version == self.place.version:
            return []
        self.place = place
        self._stood = self.settled = False
        self._stands = {version: stands for version, stands in self._stands.items() if version >= place.version}
        self._early = [item for item in self._early if self._version(item[1]) >= place.version]
        return self._take_stand()

    def _take_stand(self) -> list[Tell]:
        """Tell the others where this member stands, once per version."""
        if self._stood:
            return []
        self._stood = True
        version, stand = self.place.version, MemberRound(NEW, True) if self.bare else self.stand
        self._stands.setdefault(version, {})[self.place.rank] = stand
        note = Note(self.stands_as, stand.round + 1, self.lane, [version, float(stand.hollow)])
        return [Tell(other, note) for other in self.place.others] + self._settle()

    def _settle(self) -> list[Tell]:
        stands = self._stands.get(self.place.version, {})
        if self.settled or not stands.keys() >= set(self.place.members):
            return []
        self.settled = True
        if self.founder is None:
            self.founder = all(stands[member].hollow for member in self.place.members)
        return self._agree({member: stands[member] for member in self.place.members})

    def testify(self, place: MemberPlace) -> list[Tell]:
        """Tell the members of ``place`` that this member holds what the last round brought. It takes part in none."""
        self.place = place
        note = Note(self.stands_as, self.stand.round + 1, self.lane, [place.version, 0.0])
        return [Tell(other, note) for other in place.others]

    def introduce(self) -> list[Tell]:
        """Tell the others where this member stands, before there is a round to join."""
        return self._take_stand()

    @abstractmethod
    def take_over(self, round: int) -> list[Tell]:
        """Note that the state after ``round`` is here. Drop what came of another one: this member's contribution."""

    @property
    def forsaken(self) -> bool:
        """Return whether this member lacks the state, and so do all others."""
        return self.bare and self.settled and not self.givers

    def _look_round(self, stands: Mapping[int, MemberRound], top: int, follows: bool) -> None:
        """Find out whether this member is bare: its state must be after round ``top``, or it must have taken part since,
        so that what comes next ``follows``. A bare member came late, or what it took over died with the giver."""
        fits = self.stand.round == top or (follows and self._counted)
        self._counted = not self.bare and (fits or not self.stand.hollow)
        if not self.carries or self._counted:
            return
        self.bare, self.stand = True, MemberRound(max(0, top), True)
        able = [rank for rank in stands if top >= 0 and stands[rank].round == top and rank != self.place.rank]
        self.givers = sorted(able, key=lambda rank: (stands[rank].hollow, rank))

    def _retake(self) -> list[Tell]:
        """Look again at what came early. A message that makes no sense now is dropped: it is too late to say so."""
        tells: list[Tell] = []
        early, self._early = self._early, []
        for sender, note, payload in early:
            with suppress(MalformedMessage):
                tells += self.heard(sender, note, payload)
        return tells

    def _version(self, note: Note) -> int:
        expected = self.kinds[note.kind]
        if len(note.numbers) != expected or not all(0 <= number < 2**53 for number in note.numbers):
            raise MalformedMessage(f"a {note.kind} with the numbers {note.numbers}")
        return int(note.numbers[0])
