"""Members who tell each other their last round when the membership changes: the base of ``Group`` and ``BackupGroup``.

Everything is said under one version of the membership. When that changes, what was said under the old one is void, and
every member tells every other the last round that it has. Once all of them for the version are in, all know
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
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from taut.errors import MalformedMessage, Misuse
from taut.strategies.api import Membership, Note, Refuse, Tell, Vector

NEW = -1  # the last round of who has not taken part in any version yet


@dataclass(frozen=True, slots=True)
class MemberRound:
    """The last completed round of a member. If it ``joined_after``, it has no result of its own. ``details``: what else
    it told of itself."""

    number: int
    joined_after: bool
    details: tuple[float, ...] = ()


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

    ``length``: of the vectors; ``part``: tells machines of the same workers apart. Of the round that is ``done``:
    ``contributors`` and ``ending`` count members, ``extra`` are the sums of what was given beside the vectors.
    """

    bare = False  # the member lacks the state that the others have
    agreed = False  # all members know the same of each other: a round can be run
    founder: bool | None = True  # no round was complete when the member came; None while that is not known
    _result: Vector | None = None  # of the round that is done: the sum, its weight, and all other numbers

    def __init__(self, length: int, part: int = 0) -> None:
        self.length, self.part = length, part
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
    def members_changed(self, membership: Membership) -> list[Tell]:
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
    """One member's machine. ``kinds``: its messages and how many numbers go with each, the version first;
    ``last_round_kind``: of those that tell a last round; ``part``: tells machines of the same workers apart. ``since``:
    the round after which the member's state is, NEW if it has none yet; None where rounds stand for themselves."""

    kinds: ClassVar[Mapping[str, int]]
    last_round_kind: ClassVar[str]

    def __init__(self, membership: Membership, length: int, part: int = 0, since: int | None = None) -> None:
        super().__init__(length, part)
        self.membership = membership
        self.last_round = MemberRound(NEW if since is None else since, True)
        self.carries = since is not None
        self.bare = since == NEW
        self._counted = False  # a version was agreed on in which it had the state: it has taken part since
        self.givers: list[int] = []  # while it is bare: who has what it lacks, the first to be asked first
        # Whether nobody had completed a round when all last rounds were in for the first time; None before that. No
        # round can be completed without this member from then on, so it never comes too late for the last one.
        self.founder = None
        self._told = False  # our own last round is told
        self._last_rounds: dict[int, dict[int, MemberRound]] = {}  # of this version and of later ones
        self._early: list[tuple[int, Note, bytes]] = []

    @abstractmethod
    def _agree(self, last_rounds: Mapping[int, MemberRound]) -> list[Tell]:
        """Act on all members' last rounds, which are in."""

    @abstractmethod
    def _take(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        """Take a member's message under this version, on which all agree."""

    def hears(self, note: Note) -> bool:
        return note.kind in self.kinds and note.part == self.part

    def heard(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        version = self._version(note)
        if version < self.membership.version:
            return []  # nobody counts on what was said under a version that is over
        if note.kind == self.last_round_kind:
            told = MemberRound(note.round - 1, bool(note.numbers[1]), tuple(note.numbers[2:]))
            self._last_rounds.setdefault(version, {})[sender] = told
            return self._tell_last_round() + self._check_agreement()
        tells = self._tell_last_round()
        if version > self.membership.version or not self.agreed:
            self._early.append((sender, note, payload))
            return tells
        if sender not in self.membership.members:
            raise MalformedMessage(f"{note.kind} of worker {sender}, which is not in the group")
        return tells + self._take(sender, note, payload)

    def members_changed(self, membership: Membership) -> list[Tell]:
        if membership.version == self.membership.version:
            return []
        self.membership = membership
        self._told = self.agreed = False
        self._last_rounds = {
            version: last_rounds for version, last_rounds in self._last_rounds.items() if version >= membership.version
        }
        self._early = [item for item in self._early if self._version(item[1]) >= membership.version]
        return self._tell_last_round()

    def _tell_last_round(self) -> list[Tell]:
        """Tell the others this member's last round, once per version."""
        if self._told:
            return []
        self._told = True
        version, last_round = self.membership.version, MemberRound(NEW, True) if self.bare else self.last_round
        last_round = replace(last_round, details=self._details())
        self._last_rounds.setdefault(version, {})[self.membership.rank] = last_round
        numbers = [version, float(last_round.joined_after), *last_round.details]
        note = Note(self.last_round_kind, last_round.number + 1, self.part, numbers)
        return [Tell(other, note) for other in self.membership.others] + self._check_agreement()

    def _details(self) -> tuple[float, ...]:
        """Return what to tell the others beside the last round: whole numbers, as many everywhere."""
        return ()

    def _check_agreement(self) -> list[Tell]:
        last_rounds = self._last_rounds.get(self.membership.version, {})
        if self.agreed or not last_rounds.keys() >= set(self.membership.members):
            return []
        self.agreed = True
        if self.founder is None:
            self.founder = all(last_rounds[member].joined_after for member in self.membership.members)
        return self._agree({member: last_rounds[member] for member in self.membership.members})

    def testify(self, membership: Membership) -> list[Tell]:
        """Tell other members that this one holds what the last round brought. It takes part in none."""
        self.membership = membership
        numbers = [membership.version, 0.0, *self._details()]
        note = Note(self.last_round_kind, self.last_round.number + 1, self.part, numbers)
        return [Tell(other, note) for other in membership.others]

    def introduce(self) -> list[Tell]:
        """Tell the others this member's last round, before there is a round to join."""
        return self._tell_last_round()

    @abstractmethod
    def take_over(self, round: int) -> list[Tell]:
        """Note that the state after ``round`` is here. Drop what came of another one: this member's contribution."""

    @property
    def state_lost(self) -> bool:
        """Return whether this member lacks the state, and so do all others."""
        return self.bare and self.agreed and not self.givers

    def _look_round(self, last_rounds: Mapping[int, MemberRound], top: int, follows: bool) -> None:
        """Find out whether this member is bare: its state must be after round ``top``, or it must have taken part since,
        so that what comes next ``follows``. A bare member came late, or what it took over died with the giver."""
        fits = self.last_round.number == top or (follows and self._counted)
        self._counted = not self.bare and (fits or not self.last_round.joined_after)
        if not self.carries or self._counted:
            return
        self.bare, self.last_round = True, MemberRound(max(0, top), True)
        able = [
            rank for rank in last_rounds if top >= 0 and last_rounds[rank].number == top and rank != self.membership.rank
        ]
        self.givers = sorted(able, key=lambda rank: (last_rounds[rank].joined_after, rank))

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
