"""Exponential graphs: everybody reaches 1, 2, 4, 8 ... positions ahead, at once or in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taut.errors import Misuse
from taut.topologies.graph import Graph
from taut.topologies.shape import Shape, from_positions


def hops(workers: int) -> list[int]:
    """Return 1, 2, 4 ... below the number of workers.

    >>> hops(1), hops(2), hops(6), hops(8)
    ([], [1], [1, 2, 4], [1, 2, 4])
    """
    return [1 << power for power in range((workers - 1).bit_length())]


@dataclass(frozen=True)
class Exponential(Shape):
    """Position s sends to the positions s + 1, s + 2, s + 4 ... (mod n): ceil(log2 n) neighbours, and a spectral gap that
    falls with 1 / log n only.

    Everybody sends to and hears from equally many, so uniform weights are doubly stochastic, for any n. Strongly
    connected, as the steps of 1 alone are a ring. (Ying et al., "Exponential graph is provably efficient for
    decentralized deep training", 2021; Assran et al., "Stochastic gradient push", 2019.) ``directed=no``: the same edges,
    both ways, for methods that need symmetric weights.

    >>> Exponential().wire(range(8)).outward(6), Exponential(directed=False).wire(range(8)).neighbours(0)
    ([0, 2, 7], [1, 2, 4, 6, 7])
    """

    name = "exponential"
    advised = "exponential:directed=no"
    undirected = "try exponential:directed=no"
    directed: bool = True

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        workers = len(set(members))
        edges = [(position, (position + hop) % workers) for position in range(workers) for hop in hops(workers)]
        return from_positions(members, edges, self.directed)


@dataclass(frozen=True)
class OnePeer(Shape):
    """In round k, position s sends to position s + 2^(k mod ceil(log2 n)) (mod n), and to nobody else.

    One message per worker and round. With weights 1/2 and n a power of two, ceil(log2 n) rounds give everybody the
    exact mean: after rounds with hops 1, 2, 4 ... a worker holds the mean of the last 2, 4, 8 ... positions (Ying et al.,
    2021). For other n the mean is approached.

    >>> [OnePeer().wire(range(8), round).outward(0) for round in range(4)]
    [[1], [2], [4], [1]]
    """

    name = "one-peer"
    varies = True

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        if round < 0:
            raise Misuse(f"round {round}", "a number from 0")
        workers = len(set(members))
        ahead = hops(workers)
        hop = ahead[round % len(ahead)] if ahead else 0
        edges = [(position, (position + hop) % workers) for position in range(workers)]
        return from_positions(members, edges, directed=True)

    def union(self, members: Sequence[int]) -> Graph:
        return Exponential().wire(members)

    def period(self, workers: int) -> int:
        return max(1, len(hops(workers)))
