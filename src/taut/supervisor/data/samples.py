"""Checks that all workers use the same samples: a split that is drawn without a seed differs between workers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from taut.core.messages import LeaseRequest

REMEDY = "seed what draws the split, such as random_split(..., generator=torch.Generator().manual_seed(0))"


def other_samples(asks: Mapping[int, LeaseRequest], rank: int, voters: Collection[int], founders: int) -> dict[int, str]:
    """Return the workers that have drawn other samples than most, with the error for each; empty if not known yet.

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
    votes = Counter(given.values())
    founding = Counter(samples for one, samples in given.items() if one < founders)
    order = sorted(votes, key=lambda samples: (votes[samples], founding[samples]), reverse=True)
    if len(order) < 2:
        return {}
    leading, second = order[:2]
    if 2 * votes[leading] <= len(voters) and len(given) < len(voters):
        return {}
    unknown = (votes[leading], founding[leading]) == (votes[second], founding[second])
    wrong = [one for one, samples in given.items() if unknown or samples != leading]
    return dict.fromkeys(wrong, f"{mine.length} samples of the data set that other workers do not have: {REMEDY}")
