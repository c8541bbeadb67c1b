"""A program cut into segments, and what each of them waits for. Made once for a program, used at every all-reduce.

Sender and receiver must cut alike, and both know only a message's own range: so cuts are where the range ends and at the
multiples of ``segment_elements``, counted from the start of the buffer. Messages of different rounds then mostly share
their segments (in a ring, always), and a segment can go on as soon as it alone is there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from taut.collectives.schedule import Program


@dataclass(frozen=True, slots=True)
class Step:
    """One segment of one message. ``segment`` counts the segments between two positions within a round."""

    sends: bool
    peer: int
    round: int
    segment: int
    lo: int
    hi: int
    add: bool  # a receive: add, or replace
    copy: bool  # a send: the range changes while the transport may still hold it


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """``steps`` in program order; ``waits``: how many steps come before each; ``then``: which ones each lets go on;
    ``receives``: (sender, round, segment) to the step; ``needs``: elements."""

    steps: tuple[Step, ...]
    waits: tuple[int, ...]
    then: tuple[tuple[int, ...], ...]
    receives: dict[tuple[int, int, int], int]
    needs: int


def segments(lo: int, hi: int, segment_elements: int) -> Iterator[tuple[int, int]]:
    """Return ``lo..hi``, cut at the multiples of ``segment_elements``.

    >>> list(segments(3, 10, 4))
    [(3, 4), (4, 8), (8, 10)]
    """
    while lo < hi:
        end = min(hi, (lo // segment_elements + 1) * segment_elements)
        yield lo, end
        lo = end


@lru_cache(maxsize=256)  # a training run asks for the same few again and again, once per bucket and step
def plan(program: Program, segment_elements: int) -> ReductionPlan:
    """Cut ``program`` into segments and find their dependencies.

    The buffer falls into atoms between neighbouring cuts. Per atom the last receive (its writer) and the sends since then
    (its readers) are kept: a send waits for the writers of its atoms, a receive for their writers and readers.

    A send is copied if its range is next *added* to, or is replaced in the same round: the addressee may not have it yet.
    If it is replaced later, no copy is needed: what replaces is the finished sum, the sent range is one of its terms, so
    the addressee has had it, and if the transport still holds a view, then for a repetition that nobody reads.
    """
    bare = list(_cut(program, segment_elements))
    cuts = sorted({bound for step in bare for bound in (step.lo, step.hi)})
    writer = [-1] * len(cuts)
    readers: list[list[int]] = [[] for _ in cuts]
    copied: set[int] = set()
    waits: list[int] = []
    then: list[list[int]] = [[] for _ in bare]
    for number, step in enumerate(bare):
        before: set[int] = set()
        for atom in range(bisect_left(cuts, step.lo), bisect_left(cuts, step.hi)):
            before.add(writer[atom])
            if step.sends:
                readers[atom].append(number)
            else:
                before.update(readers[atom])
                copied.update(read for read in readers[atom] if step.add or bare[read].round == step.round)
                writer[atom], readers[atom] = number, []
        before.discard(-1)
        waits.append(len(before))
        for earlier in before:
            then[earlier].append(number)
    steps = tuple(Step(s.sends, s.peer, s.round, s.segment, s.lo, s.hi, s.add, n in copied) for n, s in enumerate(bare))
    receives = {(s.peer, s.round, s.segment): n for n, s in enumerate(steps) if not s.sends}
    return ReductionPlan(steps, tuple(waits), tuple(map(tuple, then)), receives, max(cuts, default=0))


def _cut(program: Program, segment_elements: int) -> Iterator[Step]:
    for number, (sends, receives) in enumerate(program.rounds):
        for sending, ranges in ((True, sends), (False, receives)):  # a send carries what was there before its round
            counts: Counter[int] = Counter()
            for each in ranges:
                for lo, hi in segments(each.lo, each.hi, segment_elements):
                    yield Step(sending, each.peer, number, counts[each.peer], lo, hi, each.add, False)
                    counts[each.peer] += 1
