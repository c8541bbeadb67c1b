"""Giving a newcomer the state that all others have: how ``sync`` takes workers in mid-run, and takes back the given up.

When the members of a version have told each other their last round (``round_agreement.py``), all know the last round, r,
that anybody has completed, and who has the state after it. Round r + 1 needs everybody, so until the newcomer takes part
nobody's state changes, and those who have it hold the same. The newcomer asks several of these *givers*, each for some of
the pieces (``want``); each answers at its next turn, when its optimizer has made the step of round r and not that of
r + 1 (``state``). The first of them, the *lead*, says the fingerprints of all pieces of its state before (``prints``).
A piece with another fingerprint, as buffers may have, is asked of the lead.

If a giver dies, its pieces are asked of the lead; if the lead dies, of the next one, and what came counts if its
fingerprints were here. If the newcomer dies, the others go on as they were. If a third one dies, nothing is sent twice:
what is under way is of the same round. Should everybody die who had completed round r, those who are left make it again,
and a newcomer that was given the state after r asks anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from taut.errors import MalformedMessage
from taut.strategies.allreduce.round_agreement import RoundAgreement
from taut.strategies.api import Note, Tell

PIECE_NBYTES = 1 << 20  # a channel takes no less, however small the model
MOST_PIECES = 1 << 24
MOST_GIVERS = 4  # asked at the same time: an up-link is often slower than a down-link
PRINT_NBYTES = 16


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """What a newcomer asked the worker ``other`` for, or was asked for by it: the state after which round, under which
    version of the membership, and of its pieces every ``every``-th from ``first`` on, after its fingerprints, perhaps.
    ``ask``: the newcomer begins anew with each. ``next``: the first piece that has not come."""

    other: int
    round: int
    version: int
    ask: int
    first: int = 0
    every: int = 1
    prints: bool = False
    next: int = 0

    def tell(self) -> Tell:
        numbers = [self.version, self.ask, self.first, self.every, float(self.prints)]
        return Tell(self.other, Note("want", self.round, 0, numbers))


@dataclass
class NewcomerTransfer:
    """One worker's part: as the one that takes, and as one that gives. ``limit_nbytes``: of what it takes.

    >>> taker, giver = NewcomerTransfer(), NewcomerTransfer()
    >>> for tell in taker.begin([0], round=7, version=3):
    ...     giver.heard(1, tell.note, b"")
    >>> for tell in giver.give(1, 7, b"weights", over=False):
    ...     taker.heard(0, tell.note, bytes(tell.payload))
    >>> taker.came
    b'weights'
    """

    kinds: ClassVar[Mapping[str, int]] = {"want": 5, "state": 4, "prints": 2}  # and how many numbers go with each

    limit_nbytes: int = 1 << 40
    asked: list[TransferRequest] = field(default_factory=list)
    lead: int | None = None
    round: int = -1  # the state asked for is that after it
    came: bytes | None = None  # whole, and not yet taken over
    over: bool = False  # it came from one who has finished: so have we, then
    asks: int = 0  # so many times this worker has asked for a state,
    taken: int = 0  # and taken one over
    wanted: dict[int, dict[int, TransferRequest]] = field(default_factory=dict)  # of us: by whom, from which piece on
    _given: dict[int, tuple[int, set[int]]] = field(default_factory=dict)  # to whom, at which ask, from which pieces on
    _prints: bytes | None = None
    _printed: int | None = None  # who said them
    _count: int | None = None  # of pieces
    _pieces: dict[int, bytes] = field(default_factory=dict)
    _early: list[tuple[int, Note, bytes]] = field(default_factory=list)  # before the fingerprints
    _nbytes: int = 0  # of both
    _differ: set[int] = field(default_factory=set)  # who have other pieces than the lead
    _shunned: set[int] = field(default_factory=set)  # who gave what was no state

    # --------------------------------------------------------------------------------------------- the one that takes

    def ask(self, machine: RoundAgreement) -> list[Tell]:
        """Ask for the state, where ``machine`` lacks it and knows who has it; go on with what is lacking."""
        if not machine.bare or not machine.agreed or self.whole(machine) is not None:
            return []
        able = [rank for rank in machine.givers if rank not in self._shunned]
        if not able:
            return []
        round, version = machine.last_round.number, machine.membership.version
        if not self.asked or self.round != round or not self._has_lead(able):
            return self.begin(able, round, version)
        assert self.lead is not None
        tells: list[Tell] = []
        for index, one in enumerate(self.asked):
            moved = one.other not in able or (one.other in self._differ and one.other != self.lead)
            unheard = one.version != version and one.next == one.first and (self._prints is None or not one.prints)
            if (moved or unheard) and not self._is_whole(one):
                giver = self.lead if moved else one.other
                prints = one.prints and self._prints is None
                self.asked[index] = replace(one, other=giver, version=version, prints=prints, next=one.first)
                tells.append(self.asked[index].tell())
        return tells

    def _has_lead(self, able: list[int]) -> bool:
        """Return whether there is a lead, or one who has the same pieces, and becomes it."""
        if self.lead not in able and self._prints is not None:
            self.lead = next((rank for rank in able if rank not in self._differ), None)
        return self.lead in able

    def begin(self, givers: list[int], round: int, version: int) -> list[Tell]:
        """Ask ``givers``, the first of whom is the lead, for the state after ``round``."""
        self._drop()
        givers = givers[:MOST_GIVERS]
        self.lead, self.round = givers[0], round
        self.asks += 1
        for first, giver in enumerate(givers):
            prints = first == 0 and len(givers) > 1
            self.asked.append(TransferRequest(giver, round, version, self.asks, first, len(givers), prints, first))
        return [one.tell() for one in self.asked]

    def _is_whole(self, one: TransferRequest) -> bool:
        return self._count is not None and one.next >= self._count

    @property
    def refused(self) -> bool:
        """Return whether something came that was no state."""
        return bool(self._shunned)

    def whole(self, machine: RoundAgreement) -> bytes | None:
        """Return the state that ``machine`` lacks, once it is here."""
        fits = machine.bare and machine.agreed and self.round == machine.last_round.number
        return self.came if fits else None

    def state_lost(self, machine: RoundAgreement) -> bool:
        """Return whether no worker is left that could give the state."""
        return machine.state_lost or (machine.bare and machine.agreed and self._shunned >= set(machine.givers))

    def take(self, sender: int, note: Note, payload: bytes) -> None:
        """Take fingerprints or a piece of the state, unless it is of another round or from one who is not asked now."""
        if not self.asks:
            raise MalformedMessage("a state that nobody asked for")
        ask = int(note.numbers[-1])
        if ask != self.asks or self.came is not None or all(one.other != sender for one in self.asked):
            return
        if note.kind == "prints":
            self._take_prints(sender, int(note.numbers[0]), payload)
        elif self._prints is None and any(one.prints for one in self.asked):
            self._grow(sender, payload)
            self._early.append((sender, note, payload))
        else:
            self._grow(sender, payload)
            self._take_piece(sender, note, payload)
        if self._count is not None and len(self._pieces) == self._count:
            whole = b"".join(self._pieces[piece] for piece in range(self._count))
            self._drop()
            self.came = whole

    def _take_prints(self, sender: int, pieces: int, payload: bytes) -> None:
        if sender != self.lead or self._prints is not None or not any(one.prints for one in self.asked):
            return
        if not 0 < pieces <= MOST_PIECES or len(payload) != pieces * PRINT_NBYTES:
            self._refuse(sender, f"{len(payload)} bytes of fingerprints of {pieces} pieces")
        self._prints, self._printed, self._count = payload, sender, pieces
        early, self._early = self._early, []
        for one in early:
            self._take_piece(*one)

    def _take_piece(self, sender: int, note: Note, payload: bytes) -> None:
        piece, pieces = int(note.numbers[0]), int(note.numbers[1])
        if sender in self._differ and sender != self.lead:
            return
        request = next((one for one in self.asked if (one.other, one.next) == (sender, piece)), None)
        fits = request is not None and 0 < pieces <= MOST_PIECES and self._count in (None, pieces)
        if request is not None and fits and piece >= pieces:
            return  # so many are none of those that it was asked for
        if request is not None and fits and self._is_printed(piece, payload):
            self.asked[self.asked.index(request)] = replace(request, next=piece + request.every)
            self._count, self._pieces[piece], self.over = pieces, payload, bool(note.numbers[2])
        elif sender != self.lead:
            self._differ.add(sender)  # its state is another one, or it is no state: the lead is asked
        elif sender != self._printed and self._prints is not None:
            self._drop()  # the fingerprints were of one who is gone: begin anew, by this one's
        else:
            self._refuse(sender, f"piece {piece} of {pieces} of a state, where another one was due")

    def _is_printed(self, piece: int, payload: bytes) -> bool:
        if self._prints is None:
            return True
        return fingerprint(payload) == self._prints[piece * PRINT_NBYTES : (piece + 1) * PRINT_NBYTES]

    def _grow(self, sender: int, payload: bytes) -> None:
        self._nbytes += len(payload)
        if self._nbytes > self.limit_nbytes:
            self._refuse(sender, f"a state of more than {self.limit_nbytes} bytes")

    def _refuse(self, sender: int, why: str) -> None:
        self._shunned.add(sender)
        self._drop()
        raise MalformedMessage(why)

    def shun(self) -> None:
        """Note that what came cannot be read: another giver is to be asked."""
        assert self.lead is not None
        self._shunned.add(self.lead)
        self._drop()

    def _drop(self) -> None:
        self.came, self._prints, self._printed, self._count, self._nbytes = None, None, None, None, 0
        self.asked, self._pieces, self._early, self._differ = [], {}, [], set()

    def done(self) -> int:
        """Note that the state was taken over; return the round that it is after."""
        self._drop()
        self.taken += 1
        return self.round

    # --------------------------------------------------------------------------------------------- the one that gives

    def want(self, sender: int, note: Note) -> None:
        version, ask, first, every = (int(number) for number in note.numbers[:4])
        if not first < every <= MOST_GIVERS:
            raise MalformedMessage(f"each {every}th piece of a state from piece {first} on")
        at, given = self._given.get(sender, (-1, set()))
        asked = self.wanted.setdefault(sender, {})
        for old in [old for old, one in asked.items() if one.ask < ask]:
            del asked[old]
        if ask > at or (ask == at and first not in given):
            prints = bool(note.numbers[4])
            asked[first] = TransferRequest(sender, note.round, version, ask, first, every, prints)

    def takers(self, machine: RoundAgreement, completed: int) -> list[int]:
        """Return the workers that may be given the state now: they ask for our state, after round ``completed``."""
        if not self.wanted or not machine.agreed or machine.bare:
            return []
        due = (machine.membership.version, completed)
        return [
            rank for rank, asked in self.wanted.items() if any((one.version, one.round) == due for one in asked.values())
        ]

    def give(self, to: int, round: int, data: bytes, over: bool) -> list[Tell]:
        """Send what ``to`` wants of the state after ``round``, which must not change any more."""
        view, tells = memoryview(data), list[Tell]()
        cut = [view[at : at + PIECE_NBYTES] for at in range(0, max(1, len(view)), PIECE_NBYTES)]
        for one in self.wanted.pop(to, {}).values():
            at, given = self._given.get(to, (one.ask, set()))
            self._given[to] = (one.ask, {one.first, *(given if at == one.ask else ())})
            if one.prints:
                tells.append(Tell(to, Note("prints", round, 0, [len(cut), one.ask]), b"".join(map(fingerprint, cut))))
            for piece in range(
                one.first, max(len(cut), one.first + 1), one.every
            ):  # an empty one says that there is none
                payload = cut[piece] if piece < len(cut) else b""
                tells.append(Tell(to, Note("state", round, 0, [piece, len(cut), float(over), one.ask]), payload))
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
            self.take(sender, note, payload)

    def members_changed(self, members: Collection[int]) -> None:
        for held in (self.wanted, self._given):
            for rank in [rank for rank in held if rank not in members]:
                del held[rank]


def fingerprint(piece: bytes | memoryview) -> bytes:
    return hashlib.blake2b(piece, digest_size=PRINT_NBYTES).digest()
