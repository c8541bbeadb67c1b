"""Rounds of clients that outnumber the workers: which clients are drawn, and which worker trains which of them. Pure.

    S_r: max(1, C K) of K clients, drawn at random        the worker at position i of p trains S_r[i], S_r[i + p], ...

The draw depends on the seed and the round alone, so it is the same with any number of workers. The members tell each
other their last round before they deal a round's clients, so they deal alike; where the members change in that moment, a
client may be trained twice in a round, or by no worker. A newcomer trains no client in its first round. A round's sums
say how often each client was in it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taut.strategies.local import Vector


@dataclass(frozen=True)
class ClientRound:
    """Round ``number``, from 0: the clients ``drawn`` for it, sorted, and those of them that are ``mine`` to train."""

    number: int
    drawn: tuple[int, ...]
    mine: tuple[int, ...]


@dataclass(frozen=True)
class ClientPart:
    """A worker's part of a round: the samples of the clients that it ``trained``, whose mean its weights are. Where
    noise is added: the ``noisy`` sum of their clipped updates, and which share of the round's noise that has."""

    weight: float = 0.0
    trained: tuple[int, ...] = ()
    noisy: Vector | None = None
    noise_share: float = 0.0

    def counts(self, drawn: Sequence[int]) -> tuple[float, ...]:
        """Return for each drawn client whether it is in this part: numbers to be summed over all workers."""
        return tuple(float(client in self.trained) for client in drawn)


def drawn_clients(clients: int, fraction: float, seed: int, round: int, poisson: bool = False) -> tuple[int, ...]:
    """Return the clients that are trained in this round. ``poisson``: each is drawn with the probability ``fraction``,
    whatever becomes of the others, as accountants of privacy suppose.

    >>> drawn_clients(100, 0.05, seed=7, round=3)
    (15, 27, 39, 48, 56)
    >>> drawn_clients(4, 1.0, seed=7, round=3)
    (0, 1, 2, 3)
    """
    rng = random.Random(f"{seed} {round}")
    if poisson:
        return tuple(client for client in range(clients) if rng.random() < fraction)
    return tuple(sorted(rng.sample(range(clients), max(1, int(fraction * clients + 0.5)))))


def dealt(drawn: Sequence[int], members: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return the clients that worker ``rank`` trains.

    >>> [dealt((3, 5, 8, 9, 11), (0, 2, 4), rank) for rank in (0, 2, 4)]
    [(3, 9), (5, 11), (8,)]
    """
    return tuple(drawn[members.index(rank) :: len(members)])
