"""The length of a pass over the data when workers disagree: the one that most of them ask for. Pure.

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
from dataclasses import dataclass, field

from taut.core.messages import LeaseRequest
from taut.supervisor.data.reserve_quota import final

WAIT_S = 30.0
REMEDY = "give every worker the same data set"


@dataclass(frozen=True, slots=True)
class LengthRuling:
    """The decision: ``length`` of the pass from now on (None: unknown), and why each worker with another one is wrong."""

    length: int | None
    wrong: Mapping[int, str]


@dataclass(slots=True)
class Lengths:
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

    votes: dict[int, dict[int, int]] = field(default_factory=dict)  # pass -> rank -> length
    disputed: dict[int, float] = field(default_factory=dict)  # pass -> since when

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
        counts, founding = Counter(votes.values()), Counter(votes[rank] for rank in votes if rank < founders)
        order = sorted(counts, key=lambda length: (counts[length], founding[length]), reverse=True)
        leading, unknown = order[0], present not in given.values()
        if 2 * counts[leading] <= len(voters) and (len(order) > 1 or unknown):
            if len(votes) < len(voters) and now - since_s < WAIT_S:
                return None
            if unknown:
                leading = present
            elif (counts[leading], founding[leading]) == (counts[order[1]], founding[order[1]]):
                return self._nobody_knows(epoch, votes)
        del self.disputed[epoch]
        expected = f"expected {leading} samples, as {counts[leading] or 'most'} of the workers have"
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
        return LengthRuling(
            None, dict.fromkeys(votes, f"data sets of different lengths in pass {epoch}: {each}; {REMEDY}")
        )
