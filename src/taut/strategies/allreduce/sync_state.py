"""What a worker keeps of synchronous training: the gradient's buckets, each with the machine that averages it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from taut.strategies.allreduce.round_agreement import RoundAgreement
from taut.strategies.allreduce.round_speeds import RoundSpeeds
from taut.strategies.allreduce.state_transfer import NewcomerTransfer
from taut.strategies.api import Local, Vector, Wish

AHEAD = 4  # numbers of the head that come before those of the optimizers
ELEMENTS_PER_MIB = (1 << 20) // 4


@dataclass
class GradientBucket:
    """A range of the vector, with the machine that averages it. ``first..last``: the tensors that lie in it."""

    lo: int
    hi: int
    first: int
    last: int
    machine: RoundAgreement
    launched: bool = False

    @property
    def done(self) -> bool:
        """Return whether the bucket's part of this step is done: the mean is here."""
        return self.launched and self.machine.done


@dataclass
class SyncState:
    """A worker's state. ``rate``: the learning rate agreed upon in the last round; None if nobody had data.
    ``clip_norm``: the worker's wish before a turn, what was agreed upon after it; 0 for none. ``wishes``: one for each
    optimizer of the script, the same number everywhere. ``global_batch``: before a turn the samples that this worker
    wants a round to have, 0 for none. ``speed``: its own, 0 if unknown; ``speeds``: those of all in the last round.
    ``short``: by what to scale the learning rates of its step, if it had fewer samples than the global batch.
    ``workers``: of the last round."""

    local: Local
    buckets: list[GradientBucket]
    wishes: list[Wish]
    waiting: bool = False  # the worker waits for the rest of the round
    draining: bool = False
    finished: bool = False
    rate: float | None = None
    clip_norm: float = 0.0
    rounds: int = 0
    present: Vector | None = None  # per tensor: how many workers had a gradient
    transfer: NewcomerTransfer = field(default_factory=NewcomerTransfer)
    votes: bool = True  # its own learning rate counts
    global_batch: int = 0
    speed: float = 0.0
    speeds: RoundSpeeds | None = None
    short: float = 1.0
    workers: int = 1

    def head(self, samples: int) -> list[float]:
        """Return the numbers to sum over all workers of a round to which this one gives ``samples``."""
        numbers = [samples * self.clip_norm, samples * self.global_batch, self.speed, float(self.speed > 0.0)]
        for wish in self.wishes:
            given = samples if wish.steps else 0
            votes = given if self.votes else 0
            numbers += [given, votes, *(given * each for each in wish.numbers), *(votes * each for each in wish.numbers)]
        return numbers

    @property
    def head_length(self) -> int:
        return AHEAD + sum(2 + 2 * len(wish.numbers) for wish in self.wishes)

    def agree(self, head: Sequence[float], total: float, workers: int) -> None:
        """Take over the sums of all ``head``; ``total``: the samples of the round, of so many workers."""
        self.workers, self.clip_norm = workers, head[0] / total if total else 0.0
        self.short = min(1.0, total * total / head[1]) if head[1] > 0.0 else 1.0
        self.speeds = RoundSpeeds(head[2], head[3], workers, self.speed) if total else None
        self.rate, at = None, AHEAD
        for wish in self.wishes:
            given, votes, length = head[at], head[at + 1], len(wish.numbers)
            wish.share = given / total if total else 0.0
            if given:
                first, weight = (at + 2 + length, votes) if votes else (at + 2, given)
                wish.numbers = [number / weight for number in head[first : first + length]]
                self.rate = wish.numbers[0] if self.rate is None else self.rate
            at += 2 + 2 * length


def cut_buckets(sizes: Sequence[int], mib: float) -> list[tuple[int, int]]:
    """Cut tensors of these sizes, from the last to the first (the order in which backward makes their gradients), into
    runs of about ``mib`` MiB; return the first and one after the last of each.

    >>> cut_buckets([1 << 18, 1 << 18, 10, 1 << 20], 2.0)
    [(3, 4), (0, 3)]
    >>> cut_buckets([5, 5], 0)
    [(0, 2)]
    """
    if not mib:
        return [(0, len(sizes))]
    found: list[tuple[int, int]] = []
    last, elements = len(sizes), 0
    for number in reversed(range(len(sizes))):
        elements += sizes[number]
        if elements >= mib * ELEMENTS_PER_MIB or number == 0:
            found.append((number, last))
            last, elements = number, 0
    return found
