"""Giving a newcomer the state that all others have: how ``sync`` takes workers in mid-run, and takes back the given up.

When the members of a version have told each other their last round (``round_agreement.py``), all know the last round, r,
that anybody has completed, and who has the state after it. Round r + 1 needs everybody, so until the newcomer takes part
nobody's state changes. The newcomer asks the first of the *givers* (``want``); that one answers at its next turn, when
its optimizer has made the step of round r and not that of r + 1, with all of it in pieces (``state``).

If the giver dies, the newcomer asks the next one; if the newcomer dies, the others go on as they were. If a third one
dies, nothing is sent twice: what is under way is of the same round. Should everybody die who had completed round r, those
who are left make it again, and a newcomer that was given the state after r asks anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from taut.errors import MalformedMessage
from taut.strategies.allreduce.round_agreement import RoundAgreement
from taut.strategies.api import Note, Tell

PIECE_NBYTES = 1 << 20  # a channel takes no less, however small the model
MOST_PIECES = 1 << 24


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """Whom a newcomer asked, for the state after which round, and under which version of the membership."""

    giver: int
    round: int
    version: int


@dataclass
class NewcomerTransfer:
    """One worker's part: as the one that takes, and as one that gives. ``limit_nbytes``: of what it takes.

    >>> taker, giver = NewcomerTransfer(), NewcomerTransfer()
    >>> taker.asked, taker.asks = TransferRequest(0, 7, version=3), 1
    >>> for tell in giver.give(1, 7, b"weights", over=False):
    ...     taker.take_piece(0, tell.note, bytes(tell.payload))
    >>> taker.came
    b'weights'
    """

    kinds: ClassVar[Mapping[str, int]] = {"want": 1, "state": 3}  # and how many numbers go with each

    limit_nbytes: int = 1 << 40
    asked: TransferRequest | None = None
    came: bytes | None = None  # whole, and not yet taken over
    over: bool = False  # it came from one who has finished: so have we, then
    asks: int = 0  # so many times this worker has asked for a state,
    taken: int = 0  # and taken one over
    wanted: dict[int, TransferRequest] = field(default_factory=dict)  # of us, by whom
    _given: dict[int, int] = field(default_factory=dict)  # to whom, after which round
    _pieces: list[bytes] = field(default_factory=list)
    _nbytes: int = 0  # of them
    _shunned: set[int] = field(default_factory=set)  # who gave what was no state

    # --------------------------------------------------------------------------------------------- the one that takes

    def ask(self, machine: RoundAgreement) -> list[Tell]:
        """Ask for the state, where ``machine`` lacks it and knows who has it. Once in a version, until something came."""
        if not machine.bare or not machine.agreed or self.whole(machine) is not None:
            return []
        able = [rank for rank in machine.givers if rank not in self._shunned]
        round, version, before = machine.last_round.number, machine.membership.version, self.asked
        going_on = before is not None and before.round == round and before.giver in able
        if not able or (going_on and before is not None and (self._pieces or before.version == version)):
            return []
        if not going_on:
            self._drop()
        giver = before.giver if going_on and before is not None else able[0]
        self.asked = TransferRequest(giver, round, version)
        self.asks += 1
        return [Tell(giver, Note("want", round, 0, [version]))]

    @property
    def refused(self) -> bool:
        """Return whether something came that was no state."""
        return bool(self._shunned)

    def whole(self, machine: RoundAgreement) -> bytes | None:
        """Return the state that ``machine`` lacks, once it is here."""
        fits = (
            machine.bare and machine.agreed and self.asked is not None and self.asked.round == machine.last_round.number
        )
        return self.came if fits else None

    def state_lost(self, machine: RoundAgreement) -> bool:
        """Return whether no worker is left that could give the state."""
        return machine.state_lost or (machine.bare and machine.agreed and self._shunned >= set(machine.givers))

    def take_piece(self, sender: int, note: Note, payload: bytes) -> None:
        """Take a piece of the state, unless it is of another round or from another giver than the one asked now."""
        if not self.asks:
            raise MalformedMessage("a state that nobody asked for")
        asked = self.asked
        if asked is None or (sender, note.round) != (asked.giver, asked.round) or self.came is not None:
            return
        piece, pieces = int(note.numbers[0]), int(note.numbers[1])
        self._nbytes += len(payload)
        if piece != len(self._pieces) or not piece < pieces <= MOST_PIECES or self._nbytes > self.limit_nbytes:
            self.shun()
            raise MalformedMessage(f"piece {piece} of {pieces} of a state, where another one was due, or none so large")
        self._pieces.append(payload)
        if len(self._pieces) == pieces:
            whole = b"".join(self._pieces)
            self._drop()
            self.came, self.over = whole, bool(note.numbers[2])

    def shun(self) -> None:
        """Note that what came cannot be read: another giver is to be asked."""
        assert self.asked is not None
        self._shunned.add(self.asked.giver)
        self.asked = None
        self._drop()

    def _drop(self) -> None:
        self.came, self._pieces, self._nbytes = None, [], 0

    def done(self) -> int:
        """Note that the state was taken over; return the round that it is after."""
        assert self.asked is not None
        round, self.came, self.asked = self.asked.round, None, None
        self.taken += 1
        return round

    # --------------------------------------------------------------------------------------------- the one that gives

    def want(self, sender: int, note: Note) -> None:
        if self._given.get(sender) != note.round:
            self.wanted[sender] = TransferRequest(sender, note.round, int(note.numbers[0]))

    def takers(self, machine: RoundAgreement, completed: int) -> list[int]:
        """Return the workers that may be given the state now: they ask for our state, after round ``completed``."""
        if not self.wanted or not machine.agreed or machine.bare:
            return []
        version = machine.membership.version
        return [rank for rank, one in self.wanted.items() if (one.version, one.round) == (version, completed)]

    def give(self, to: int, round: int, data: bytes, over: bool) -> list[Tell]:
        """Send the state after ``round``, which must not change any more."""
        self.wanted.pop(to, None)
        self._given[to] = round
        view = memoryview(data)
        pieces = max(1, -(-len(view) // PIECE_NBYTES))
        tells = []
        for piece in range(pieces):
            note = Note("state", round, 0, [piece, pieces, float(over)])
            tells.append(Tell(to, note, view[piece * PIECE_NBYTES : (piece + 1) * PIECE_NBYTES]))
        return tells

    # -------------------------------------------------------------------------------------------------------- both

    def hears(self, note: Note) -> bool:
        return note.kind in self.kinds

    def heard(self, sender: int, note: Note, payload: bytes) -> None:
        expected = self.kinds[note.kind]
        if len(note.numbers) != expected or not all(0 <= number < 2**53 for number in note.numbers):
            raise MalformedMessage(f"a {note.kind} with the numbers {note.numbers}")
        if note.kind == "want":
            self.want(sender, note)
        else:
            self.take_piece(sender, note, payload)

    def members_changed(self, members: Collection[int]) -> None:
        for held in (self.wanted, self._given):
            for rank in [rank for rank in held if rank not in members]:
                del held[rank]
        if self.asked is not None and self.asked.giver not in members and self.came is None:
            self.asked = None
            self._drop()
