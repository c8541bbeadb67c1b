"""Mixing weights: the share of a neighbour's vector in a worker's new one.

A gossip round replaces every x_i by sum_j W_ij x_j. If W is doubly stochastic (rows and columns sum to 1) the mean of
all x_i stays what it was, and the distance from it shrinks each round by at least the factor rho, the second largest
|eigenvalue| of W (for symmetric W; Boyd, Diaconis, Xiao, "Fastest mixing Markov chain on a graph", 2004).

- ``metropolis``: W_ij = 1 / (1 + max(d_i, d_j)) along edges, the rest at home. Symmetric and doubly stochastic on every
  undirected graph, and each worker needs only its neighbours' degrees.
- ``uniform``: W_ij = 1 / (1 + d), where every degree is d (of a directed graph: in and out).
- ``push``: W_ij = 1 / (1 + out-degree of j): columns sum to 1, rows need not. For push-sum on directed graphs, which
  carries a weight beside the vector and divides by it (Kempe, Dobra, Gehrke, "Gossip-based computation of aggregate
  information", 2003).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from taut.errors import Misuse
from taut.specs import did_you_mean
from taut.topologies.graph import Graph, Weights

KINDS = ("metropolis", "uniform")


def row_of(graph: Graph, rank: int, kind: str) -> Mapping[int, float]:
    """Return what the vectors of others count in the new one of ``rank``: its row of the mixing matrix, without its own
    share. The row is worked out once for a graph.

    A graph that is no longer regular, because a worker died, is mixed by Metropolis weights though ``uniform`` was asked
    for; a directed one by equal shares of all that send.

    >>> row_of(Graph((0, 1, 2), {(0, 1), (0, 2)}), 1, "metropolis")
    {0: 0.3333333333333333}
    """
    row = graph.mixing_rows.get((kind, rank))
    if row is None:
        others = graph.inward_lists[rank]
        if graph.directed or (kind == "uniform" and len(degrees_of(graph)) == 1):
            row = dict.fromkeys(others, 1.0 / (1 + len(others)))
        else:
            row = {other: 1.0 / (1 + max(graph.degree(rank), graph.degree(other))) for other in others}
        graph.mixing_rows[kind, rank] = row
    return row


def degrees_of(graph: Graph) -> set[int]:
    """Return how many others the members send to, and hear from: one number where all have equally many."""
    return {len(others) for lists in (graph.inward_lists, graph.outward_lists) for others in lists.values()}


def weights(graph: Graph, kind: str) -> Weights:
    """Return doubly stochastic weights of the kind that is asked for."""
    if kind == "metropolis":
        return metropolis(graph)
    if kind == "uniform":
        return uniform(graph)
    remedy = did_you_mean(kind, KINDS, "as in --mixing metropolis")
    raise Misuse(f"mixing weights {kind!r}", f"one of {', '.join(KINDS)}", remedy)


def metropolis(graph: Graph) -> Weights:
    """Return Metropolis-Hastings weights.

    >>> metropolis(Graph((0, 1, 2), {(0, 1), (0, 2)}))[1]
    {0: 0.3333333333333333, 1: 0.6666666666666667}
    """
    if graph.directed:
        remedy = "use uniform weights where all degrees are equal, push-sum (push_weights), or an undirected topology"
        raise Misuse("metropolis weights on a directed graph", "an undirected one", remedy)
    rows = {rank: row_of(graph, rank, "metropolis") for rank in graph.members}
    return {rank: dict(sorted({**row, rank: 1.0 - sum(row.values())}.items())) for rank, row in rows.items()}


def uniform(graph: Graph) -> Weights:
    """Return the same share for the worker itself and each neighbour; only where all have equally many.

    >>> uniform(Graph((0, 1, 2), {(0, 1), (1, 2), (0, 2)}))[1]
    {0: 0.3333333333333333, 1: 0.3333333333333333, 2: 0.3333333333333333}
    """
    degrees = degrees_of(graph)
    if len(degrees) > 1:
        expected = "equally many for everybody"
        remedy = "use push-sum (push_weights)" if graph.directed else "use metropolis"
        raise Misuse(f"uniform weights where workers have {min(degrees)} to {max(degrees)} neighbours", expected, remedy)
    share = 1.0 / (1 + max(degrees, default=0))
    return {rank: dict.fromkeys(sorted([*graph.inward_lists[rank], rank]), share) for rank in graph.members}


def push(graph: Graph) -> Weights:
    """Return the weights with which each worker splits its vector evenly over itself and those it sends to.

    >>> push(Graph((0, 1), {(0, 1)}, directed=True))
    {0: {0: 0.5}, 1: {0: 0.5, 1: 1.0}}
    """
    share = {rank: 1.0 / (1 + len(others)) for rank, others in graph.outward_lists.items()}
    return {rank: {other: share[other] for other in sorted([*graph.inward_lists[rank], rank])} for rank in graph.members}


def matrix(members: Sequence[int], table: Weights) -> np.ndarray:
    """Return the weights as an array, in the order of ``members``.

    >>> matrix((3, 7), {3: {3: 0.5, 7: 0.5}, 7: {3: 0.5, 7: 0.5}}).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    index_of = {rank: index for index, rank in enumerate(members)}
    array = np.zeros((len(index_of), len(index_of)))
    for rank, row in table.items():
        for other, share in row.items():
            array[index_of[rank], index_of[other]] = share
    return array


def spectral_gap(mixing: np.ndarray) -> float:
    """Return 1 - the second largest |eigenvalue|; 1 for a single worker, which always agrees.

    >>> round(spectral_gap(np.full((4, 4), 0.25)), 12)
    1.0
    """
    if len(mixing) < 2:
        return 1.0
    symmetric = np.array_equal(mixing, mixing.T)
    sizes = np.abs(np.linalg.eigvalsh(mixing) if symmetric else np.linalg.eigvals(mixing))
    return float(1.0 - np.sort(sizes)[-2])


def disagreement_left(rounds: Sequence[np.ndarray]) -> float:
    """Return the factor that the distance from the mean shrinks by at least when these mixing matrices follow each
    other: the norm of W_k ... W_1 - 11'/n. Of one symmetric matrix it is the second largest |eigenvalue|.

    >>> round(disagreement_left([np.full((4, 4), 0.25)]), 12)
    0.0
    """
    size = len(rounds[0])
    product = np.eye(size) - 1.0 / size
    for mixing in rounds:
        product = mixing @ product
    return float(np.linalg.norm(product, 2))
