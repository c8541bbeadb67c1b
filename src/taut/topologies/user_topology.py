"""A topology that the user builds: workers, and channels between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from taut.errors import Misuse
from taut.topologies.graph import Edge, Graph

W = TypeVar("W")


class Topology(Generic[W]):
    """A graph of workers. ``worker`` attaches one and gives its rank; ``channel`` wires two of them, both ways.

    >>> ring = Topology()
    >>> a, b, c, d = (ring.worker(name) for name in "abcd")
    >>> for left, right in [(a, b), (b, c), (c, d), (d, a)]: ring.channel(left, right)
    >>> ring.neighbours(a), ring.is_complete(), ring.wiring().diameter()
    ([1, 3], False, 2)
    """

    def __init__(self) -> None:
        self.workers: list[W] = []
        self.channels: set[Edge] = set()
        self.alone: int | None = None  # the rank of the only worker that ran in this process; None: all did
        self._graph: tuple[tuple[int, int], Graph] | None = None  # the last wiring, and the numbers it was made for

    @classmethod
    def complete(cls, workers: Iterable[W]) -> Topology[W]:
        """Return a topology in which all workers are wired to each other.

        >>> Topology.complete("abc").neighbours(0)
        [1, 2]
        """
        return cls.shaped("complete", workers)

    @classmethod
    def shaped(cls, spec: str, workers: Iterable[W]) -> Topology[W]:
        """Return a topology wired in a named shape, as on the command line.

        >>> Topology.shaped("torus:2x3", "abcdef").neighbours(0)
        [1, 2, 3]
        """
        from taut.topologies.registry import check

        topology = cls()
        topology.workers.extend(workers)
        if topology.workers:
            shape = check(spec, len(topology.workers))
            graph = shape.union(range(len(topology.workers)))
            if graph.directed or shape.varies:
                remedy = "channels carry both ways; try exponential:directed=no"
                raise Misuse(f"channels of the topology {spec!r}", "an undirected graph that does not vary", remedy)
            topology.channels.update(graph.edges)
        return topology

    def worker(self, worker: W) -> int:
        """Attach a worker and return its rank."""
        self.workers.append(worker)
        return len(self.workers) - 1

    def channel(self, a: int, b: int) -> None:
        """Wire two attached workers: each includes the updates that the other publishes."""
        for rank in (a, b):
            if not 0 <= rank < len(self.workers):
                raise Misuse(f"a channel to worker {rank}", f"a rank below {len(self.workers)}", "attach it first")
        if a == b:
            raise Misuse(f"a channel from worker {a} to itself", "two different workers")
        self.channels.add((min(a, b), max(a, b)))

    def here(self) -> list[tuple[int, W]]:
        """Return the workers that ran in this process, with their ranks: all of them, or under ``taut run`` one.

        >>> Topology.complete("ab").here()
        [(0, 'a'), (1, 'b')]
        """
        return [(rank, worker) for rank, worker in enumerate(self.workers) if self.alone in (None, rank)]

    def wiring(self) -> Graph:
        """Return the graph, as named shapes give it: with mixing weights, diameter, spanning trees and repair."""
        size = len(self.workers), len(self.channels)  # both only grow
        if self._graph is None or self._graph[0] != size:
            self._graph = size, Graph(tuple(range(len(self.workers))), frozenset(self.channels))
        return self._graph[1]

    def neighbours(self, rank: int) -> list[int]:
        return self.wiring().neighbours(rank)

    def is_complete(self) -> bool:
        """Return whether every update reaches every worker directly, so that all replicas agree after a drain."""
        n = len(self.workers)
        return len(self.channels) == n * (n - 1) // 2

    def check(self) -> None:
        """Raise ``Misuse`` for a graph that falls apart."""
        if not self.workers:
            raise Misuse("a topology without workers", "at least one", "attach them with Topology.worker(...)")
        self.wiring().check_connected()
