"""The data when workers disagree: the length of a pass that most of them ask for, and the samples that most have. Pure.

The first worker that asks for a pass gets a lease at once, by the length that it gives. When another worker gives another
length, no worker gets leases of this pass until a decision:

- a length that more than half of the voters give wins at once, and so does the only one that voters give;
- when all voters have asked for the pass, or ``WAIT_S`` have passed, the length with the most votes wins; of equals the
  one that more of the run's first workers give. If these are equal, too, all voters are wrong: the right data set is
  unknown.

Voters are the workers that train. A pass without known votes (the supervisor was restarted, or most had agreed on it)
keeps its length unless more than half of the voters give another. A worker that gives two lengths for one pass is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from msgspec import Struct

from taut.core.messages import LeaseRequest
from taut.supervisor.data.reserve_quota import final

WAIT_S = 30.0
REMEDY = "give every worker the same data set"
SEED_REMEDY = (
    "all need the same data set, or list of shards: seed what draws a split, "
    "such as random_split(..., generator=torch.Generator().manual_seed(0))"
)


class LengthRuling(Struct, frozen=True):
    """The decision: ``length`` of the pass from now on (None: unknown), and why each worker with another one is wrong."""

    length: int | None
    wrong: Mapping[int, str]


class Lengths(Struct):
    """The length that each worker asked for.

    >>> lengths, asks = Lengths(), {}
    >>> for rank, length in ((2, 7), (0, 100)):
    ...     _ = lengths.vote(rank, 5, length)
    >>> lengths.rule(5, 7, asks, voters=(0, 1, 2), founders=3, now=0.0) is None
    True
    >>> _ = lengths.vote(1, 5, 100); ruling = lengths.rule(5, 7, asks, voters=(0, 1, 2), founders=3, now=0.0)
    >>> ruling.length, list(ruling.wrong)
    (100, [2])
    """

    votes: dict[int, dict[int, int]] = {}  # pass -> rank -> length
    disputed: dict[int, float] = {}  # pass -> since when

    def vote(self, rank: int, epoch: int, length: int) -> bool:
        """Note that worker ``rank`` asks for a pass with this length. Return False if it gave another one before."""
        return self.votes.setdefault(epoch, {}).setdefault(rank, length) == length

    def forget(self, passes: Mapping[int, int], voters: Collection[int]) -> None:
        """Forget the votes on passes of these lengths if most voters gave the same: nothing can change it."""
        for epoch in [one for one in self.votes if one in passes and one not in self.disputed]:
            given = self.votes[epoch]
            if 2 * sum(given.get(rank) == passes[epoch] for rank in voters) > len(voters):
                del self.votes[epoch]

    def rule(
        self,
        epoch: int,
        present: int,
        asks: Mapping[int, LeaseRequest],
        voters: Collection[int],
        founders: int,
        now: float,
    ) -> LengthRuling | None:
        """Decide on a disputed pass, of ``present`` length so far; return None if it is too early. ``asks``: the last
        requests of all; ``founders``: lower ranks are of the run's first workers."""
        since_s = self.disputed.setdefault(epoch, now)
        given = {rank: ask.length for rank, ask in asks.items() if ask.epoch <= epoch <= final(ask)}
        given |= self.votes.get(epoch, {})
        votes = {rank: given[rank] for rank in sorted(given) if rank in voters}
        ranked, unknown = _ranked(votes, founders), present not in given.values()
        (count, *_), leading = ranked[0]
        if 2 * count <= len(voters) and (len(ranked) > 1 or unknown):
            if len(votes) < len(voters) and now - since_s < WAIT_S:
                return None
            if unknown:
                leading, count = present, 0
            elif ranked[0][0] == ranked[1][0]:
                return self._nobody_knows(epoch, votes)
        del self.disputed[epoch]
        expected = f"expected {leading} samples, as {count or 'most'} of the workers have"
        wrong = {rank: self._why(votes[rank], epoch, expected) for rank in votes if votes[rank] != leading}
        return LengthRuling(leading, wrong)

    def contradiction(self, rank: int, epoch: int, length: int) -> str:
        """Return the error for a worker that gives two lengths for one pass."""
        return self._why(length, epoch, f"expected {self.votes[epoch][rank]} samples, as it said before")

    def _why(self, length: int, epoch: int, expected: str) -> str:
        return f"a data set of {length} samples in pass {epoch}: {expected}; {REMEDY}"

    def _nobody_knows(self, epoch: int, votes: Mapping[int, int]) -> LengthRuling:
        del self.disputed[epoch]
        each = ", ".join(f"worker {rank} has {length} samples" for rank, length in list(votes.items())[:8])
        why = f"data sets of different lengths in pass {epoch}: {each}; {REMEDY}"
        return LengthRuling(None, dict.fromkeys(votes, why))


def other_samples(asks: Mapping[int, LeaseRequest], rank: int, voters: Collection[int], founders: int) -> dict[int, str]:
    """Return the workers that have drawn other samples than most, with the error for each; empty if not known yet. (A
    split that is drawn without a seed differs between workers.)

    ``asks``: the last requests of all; those for the same passes as the request of worker ``rank`` are compared. If no
    choice has more than half of the ``voters``, and all have asked, the most frequent one is right; of equals the one of
    most ``founders`` (ranks below that); if these are equal, too, none.

    >>> def ask(samples): return LeaseRequest(0, 100, 10, last=True, until=3, samples=samples)
    >>> list(other_samples({0: ask(7), 1: ask(7), 2: ask(8)}, 2, voters=(0, 1, 2), founders=3))
    [2]
    >>> asks = {0: ask(7), 1: ask(8)}
    >>> [list(other_samples(asks, 1, (0, 1), founders)) for founders in (1, 2)], other_samples(asks, 1, (0, 1, 2), 3)
    ([[1], [0, 1]], {})
    """
    mine = asks[rank]
    given = {
        one: ask.samples
        for one, ask in asks.items()
        if one in voters and ask.samples and (ask.until, ask.length) == (mine.until, mine.length)
    }
    ranked = _ranked(given, founders)
    if len(ranked) < 2 or (2 * ranked[0][0][0] <= len(voters) and len(given) < len(voters)):
        return {}
    unknown, leading = ranked[0][0] == ranked[1][0], ranked[0][1]
    wrong = [one for one, samples in given.items() if unknown or samples != leading]
    return dict.fromkeys(wrong, f"{mine.length} samples, or shards, that other workers do not have: {SEED_REMEDY}")


def _ranked(given: Mapping[int, int], founders: int) -> list[tuple[tuple[int, int], int]]:
    """Return ((votes, votes of founders), value) of all values that workers give, the most frequent first."""
    votes, founding = Counter(given.values()), Counter(value for rank, value in given.items() if rank < founders)
    return sorted((((votes[one], founding[one]), one) for one in votes), key=lambda each: each[0], reverse=True)
