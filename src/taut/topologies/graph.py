"""A topology that the user builds: workers, and channels between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

import networkx as nx

from taut.errors import Misuse

W = TypeVar("W")


class Topology(Generic[W]):
    """A graph of workers. ``worker`` attaches one and gives its rank; ``channel`` wires two of them, both ways.

    >>> ring = Topology()
    >>> a, b, c, d = (ring.worker(name) for name in "abcd")
    >>> for left, right in [(a, b), (b, c), (c, d), (d, a)]: ring.channel(left, right)
    >>> ring.neighbours(a), ring.is_complete()
    ([1, 3], False)
    """

    def __init__(self) -> None:
        self.graph = nx.Graph()
        self.workers: list[W] = []

    @classmethod
    def complete(cls, workers: Iterable[W]) -> Topology[W]:
        """Everybody wired to everybody.

        >>> Topology.complete("abc").neighbours(0)
        [1, 2]
        """
        topology = cls()
        for worker in workers:
            rank = topology.worker(worker)
            for other in range(rank):
                topology.channel(rank, other)
        return topology

    def worker(self, worker: W) -> int:
        """Attach a worker; its rank."""
        self.workers.append(worker)
        rank = len(self.workers) - 1
        self.graph.add_node(rank)
        return rank

    def channel(self, a: int, b: int) -> None:
        """Wire two attached workers: what one publishes, the other includes."""
        for rank in (a, b):
            if rank not in self.graph:
                raise Misuse(f"a channel to worker {rank}", f"a rank below {len(self.workers)}", "attach it first")
        if a == b:
            raise Misuse(f"a channel from worker {a} to itself", "two different workers")
        self.graph.add_edge(a, b)

    def neighbours(self, rank: int) -> list[int]:
        return sorted(self.graph.neighbors(rank))

    def is_complete(self) -> bool:
        """Every update reaches every worker directly, so after a drain all replicas agree."""
        n = len(self.workers)
        return int(self.graph.number_of_edges()) == n * (n - 1) // 2

    def check(self) -> None:
        """``Misuse`` for a graph that falls apart."""
        if not self.workers:
            raise Misuse("a topology without workers", "at least one", "attach them with Topology.worker(...)")
        if not nx.is_connected(self.graph):
            parts = [sorted(part) for part in nx.connected_components(self.graph)]
            raise Misuse(
                f"a topology in {len(parts)} parts {parts[:4]}",
                "a connected one",
                "add channels between them",
            )
