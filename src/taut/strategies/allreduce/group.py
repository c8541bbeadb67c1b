"""A group that averages vectors, over and over, whoever comes and goes: what `sync` and the averaging methods use.

    mean = sum_i w_i x_i / sum_i w_i        over the members i that contributed to the round

A round is one all-reduce (``collectives``) of w * x and a few numbers more, run under one version of the membership.
Whenever the version changes, the round under way is dropped, and every member tells every other the
last round that it completed. Once all last rounds of that version are in, all know the same, and act alike:

- Somebody has completed the round that others are still in: of those, the one of the lowest rank sends them its result.
- Nobody has: the round is run again, by those who are left, with the contributions that they kept.
- A newcomer takes part from the round after the last completed one, once it has the state (where members carry one).

So all members that complete a round have the same bits, and nobody waits for who is gone. (A result that only the dead
had seen is made anew: the survivors agree, which is all that can be asked.) Last rounds differ by one round at most,
since nobody completes a round without everybody's contribution, nor contributes to one before it has completed the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from taut.collectives import SEGMENT_ELEMENTS, Piece, Reduction, named
from taut.collectives.schedule import ELEMENT_NBYTES
from taut.collectives.wire import FULL, Wire
from taut.errors import MalformedMessage
from taut.strategies.allreduce.round_agreement import Contribution, MemberRound, RoundAgreement
from taut.strategies.api import Membership, Note, Tell, Vector

if TYPE_CHECKING:
    from taut.collectives import Program

LEAST_SEGMENT_ELEMENTS = 1 << 14  # below 64 KiB a message costs more than its bytes
PIPELINE = 8  # at least so many segments to a chunk, so that a hop does not wait for the whole of it
OWN_NUMBERS = 3  # after the vector: the weight, how many are ending, how many contributed


class Group(RoundAgreement):
    """One member's machine. ``length``: of the vectors; ``schedule``: of the all-reduce, by name; ``part``: tells groups
    of the same workers apart; ``wire``: how pieces are written (``collectives/wire.py``). Rounds follow one another:
    ``begin``, then ``done``, then ``mean``, then ``begin`` again.

    Sums are of float32: a total weight above 2^24 is rounded.

    >>> from taut.topologies.registry import parse
    >>> groups = [Group(Membership(rank, (0, 1), parse("complete"), 1), length=2) for rank in (0, 1)]
    >>> under_way = [(rank, tell) for rank in (0, 1) for tell in groups[rank].begin(np.float32([rank, 4]), rank + 1.0)]
    >>> while under_way:
    ...     sender, tell = under_way.pop(0)
    ...     under_way += [(tell.to, more) for more in groups[tell.to].heard(sender, tell.note, bytes(tell.payload))]
    >>> x = np.zeros(2, np.float32)
    >>> groups[0].done, groups[0].mean(x), (3 * x).tolist(), groups[0].contributors
    (True, 3.0, [2.0, 12.0], 2)
    """

    kinds = {"piece": 3, "stand": 2, "result": 1}  # noqa: RUF012
    last_round_kind = "stand"

    def __init__(
        self,
        membership: Membership,
        length: int,
        schedule: str = "ring",
        part: int = 0,
        since: int | None = None,
        wire: str = FULL,
    ) -> None:
        super().__init__(membership, length, part, since)
        self._schedule, self._wire = named(schedule), Wire(wire, length)
        self.segment_elements = 0  # the longest piece; 0: by the length and the number of members
        self._contribution: Contribution | None = None
        self._behind = False  # the others have completed the round that we are in: its result is coming
        self._buffers: list[Vector] = []  # of odd and of even rounds, for the last result must outlive its round
        self._reduction: Reduction | None = None
        self._program: Program | None = None
        self._before: tuple[MemberRound, Contribution, Vector | None] | None = None  # the round that is done

    @property
    def element_nbytes(self) -> int:
        """Return how many bytes an element of the vector takes in a piece."""
        return self._wire.nbytes(0, 1) if self.length else ELEMENT_NBYTES

    @property
    def completed(self) -> int:
        return max(0, self.last_round.number)

    def _begin(self, mine: Contribution) -> list[Tell]:
        assert self._contribution is None, "the last round is not done"
        self._contribution = mine if mine.kept else replace(mine, values=mine.values.copy())
        return self._tell_last_round() + self._run()

    def members_changed(self, membership: Membership) -> list[Tell]:
        if membership.version != self.membership.version:
            self._behind = False
            self._reduction = self._program = None
        return super().members_changed(membership)

    def let_go(self) -> Vector:
        """Return a copy of the values that the caller had kept; the round under way goes on with the copy."""
        assert self._contribution is not None, "no round is under way"
        self._contribution = replace(self._contribution, values=self._contribution.values.copy(), kept=False)
        return self._contribution.values

    def take_over(self, round: int) -> list[Tell]:
        self.bare, self._counted, self.last_round = False, True, MemberRound(round, True)
        mine = self._contribution
        if mine is not None:
            numbers = (0.0, *mine.numbers[1:OWN_NUMBERS], *(0.0 for _ in mine.numbers[OWN_NUMBERS:]))
            self._contribution = replace(mine, weight=0.0, numbers=numbers)
        return self._run()

    def reopen(self) -> None:
        """Forget the result of the round that is done: the members are about to change, and of what belongs together with
        that round not all is done. The result is handed to this member again, or the round is run again with what was
        given to ``begin``, which must have been kept."""
        assert self.done and self._before is not None, "nothing to open again"
        self.last_round, self._contribution, self._result = self._before
        self.done, self._before = False, None

    def _agree(self, last_rounds: Mapping[int, MemberRound]) -> list[Tell]:
        """Find out who is behind and what the next round is, and go on."""
        real = {rank: last_rounds[rank].number for rank in last_rounds if not last_rounds[rank].joined_after}
        top = max(real.values() if real else (last_round.number for last_round in last_rounds.values()))
        # Who joined after it follows whoever has completed a round; one round before `top` it has contributed to it.
        behind = [rank for rank in last_rounds if real and last_rounds[rank].number == top - 1]
        self._look_round(last_rounds, top, follows=self.membership.rank in behind and self._contribution is not None)
        if self.bare:
            pass  # a result is of no use to it
        elif self.membership.rank in behind:
            if self._contribution is None:
                self.agreed = False  # that cannot be: somebody lies, and there is no round before the members change
                return []
            self._behind = True
        elif self.last_round.joined_after:
            self.last_round = MemberRound(max(0, top), True)
        tells: list[Tell] = []
        if real and self.membership.rank == min(rank for rank in real if real[rank] == top):
            assert self._result is not None
            note = Note("result", top, self.part, [self.membership.version, *self._result_details()])
            tells += [Tell(rank, note, memoryview(self._host(self._result).view(np.uint8))) for rank in behind]  # type: ignore[arg-type]
        return tells + self._retake() + self._run()

    def _result_details(self) -> tuple[float, ...]:
        """Return what to tell beside the result of a round: whole numbers, as many everywhere."""
        return ()

    def _take(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        if note.kind == "result":
            return self._take_result(note, payload)
        round = self.last_round.number + 1
        if note.round == round and self._reduction is not None:
            at = self.membership.members.index(sender)
            step, segment = int(note.numbers[1]), int(note.numbers[2])
            return self._sent(self._reduction.arrived(at, step, segment, payload))
        if note.round not in (round, round + 1):
            raise MalformedMessage(f"a piece of round {note.round}; this worker is in round {round}")
        self._early.append((sender, note, payload))
        return []

    def _take_result(self, note: Note, payload: bytes) -> list[Tell]:
        if self.carries and self.last_round.joined_after and note.round <= self.last_round.number:
            return []  # it is in the state that we were given, or will be
        if not self._behind or note.round != self.last_round.number + 1:
            raise MalformedMessage(f"a result of round {note.round} that nobody waits for")
        buffer = self._buffer(note.round)
        if len(payload) != buffer.nbytes:
            raise MalformedMessage(f"a result of {len(payload)} bytes instead of {buffer.nbytes}")
        self._behind = False
        self._put(buffer, np.frombuffer(payload, self._wire.dtype))
        self._complete(buffer)
        return []

    def _run(self) -> list[Tell]:
        """Start the all-reduce, if there is something to reduce and everybody knows with whom."""
        mine, members = self._contribution, self.membership.members
        if mine is None or not self.agreed or self._behind or self.bare or self._reduction is not None:
            return []
        buffer = self._buffer(self.last_round.number + 1)
        if self._program is None or self._program.length != len(buffer):
            self._program = self._schedule.program(len(members), members.index(self.membership.rank), len(buffer))
        fitting = min(SEGMENT_ELEMENTS, max(LEAST_SEGMENT_ELEMENTS, len(buffer) // (PIPELINE * len(members))))
        segment = self.segment_elements or fitting
        self._reduction = Reduction(self._program, buffer, segment, partial(self._fill, buffer), self._wire)
        return self._sent(self._reduction.begin()) + self._retake()

    def _sent(self, pieces: list[Piece]) -> list[Tell]:
        assert self._reduction is not None
        round, version = self.last_round.number + 1, self.membership.version
        tells = []
        for piece in pieces:
            note = Note("piece", round, self.part, [version, piece.round, piece.segment])
            tells.append(Tell(self.membership.members[piece.to], note, piece.data))
        if self._reduction.done:
            self._complete(self._reduction.buffer)
        return tells

    def _complete(self, buffer: Vector) -> None:
        assert self._contribution is not None
        kept = self._contribution.kept
        self._before = (self.last_round, self._contribution, self._result) if kept else None
        self.last_round = MemberRound(self.last_round.number + 1, False)
        self._reduction = self._contribution = None
        self._finish(buffer)

    def _buffer(self, round: int) -> Vector:
        """Return the buffer of a round. It is free: whoever is in this round has all pieces of the last but one."""
        assert self._contribution is not None
        size = self.length + len(self._contribution.numbers)
        if not self._buffers or len(self._buffers[0]) != size:
            self._buffers = [self._room(size) for _ in range(2)]
        return self._buffers[round % 2]

    def _room(self, size: int) -> Vector:
        return np.empty(size, np.float32)

    def _put(self, target: Vector, source: Vector) -> None:
        """Copy ``source``, in host memory, to a part of a buffer."""
        target[:] = source

    def _host(self, buffer: Vector) -> Vector:
        return buffer

    @property
    def _summed(self) -> Contribution | None:
        """Return what this member gives to the all-reduce."""
        return self._contribution

    def _fill(self, buffer: Vector, lo: int, hi: int) -> None:
        """Write elements ``lo..hi`` of the contribution, weighted, to ``buffer``."""
        mine = self._summed
        assert mine is not None
        length = len(mine.values)
        end = min(hi, length)
        if mine.weight:
            np.multiply(mine.values[lo:end], np.float32(mine.weight), out=buffer[lo:end])
        else:
            buffer[lo:end] = 0.0  # also where a value is not finite
        if hi > length:
            buffer[max(lo, length) : hi] = mine.numbers[max(lo, length) - length : hi - length]
