"""Any graph: it is mended when workers leave, grows when they join, and its weights keep the mean."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from topology_cases import graphs

from taut.errors import Misuse
from taut.topologies import Graph
from taut.topologies.mixing import disagreement_left


def as_networkx(graph: Graph) -> nx.Graph:
    web = nx.DiGraph() if graph.directed else nx.Graph()
    web.add_nodes_from(graph.members)
    web.add_edges_from(graph.edges)
    return web


@given(graphs())
def test_paths_agree_with_networkx(graph: Graph) -> None:
    web = as_networkx(graph)
    assert graph.is_connected()
    assert graph.diameter() == (nx.diameter(web) if len(graph.members) > 1 else 0)
    for rank in graph.members:
        assert graph.neighbours(rank) == sorted(set(nx.all_neighbors(web, rank)))
        assert graph.outward(rank) == sorted(web.adj[rank])
    assert sum(len(graph.outward(rank)) for rank in graph.members) == graph.messages()


@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda e: e[0] != e[1])), st.booleans())
def test_falling_apart_is_noticed(edges: set[tuple[int, int]], directed: bool) -> None:
    graph = Graph(tuple(range(10)), frozenset(edges), directed)
    web = as_networkx(graph)
    assert graph.is_connected() == (nx.is_strongly_connected(web) if directed else nx.is_connected(web))
    assert graph.parts() == sorted(map(sorted, nx.connected_components(web.to_undirected())))
    if not graph.is_connected():
        with pytest.raises(Misuse, match=r"expected a (strongly )?connected one; add"):
            graph.check_connected()


@settings(max_examples=some(200))
@given(graphs(), st.data())
def test_whoever_leaves_the_rest_stays_connected(graph: Graph, data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.sampled_from(graph.members), max_size=len(graph.members) - 1))
    left = graph.without(*gone)
    assert set(left.members) == set(graph.members) - gone
    assert left.is_connected()
    for rank in left.members:
        leavers_touched = len(set(graph.neighbours(rank)) & gone)
        assert left.degree(rank) <= graph.degree(rank) + leavers_touched <= 2 * graph.degree(rank)
        if not leavers_touched:
            assert left.neighbours(rank) == graph.neighbours(rank)


@given(graphs(), st.data())
@settings(max_examples=some(100))
def test_one_by_one_too_with_joins_between(graph: Graph, data: st.DataObject) -> None:
    for step in range(8):
        if data.draw(st.booleans()) and len(graph.members) > 1:
            graph = graph.without(data.draw(st.sampled_from(graph.members)))
        else:
            before = {rank: graph.degree(rank) for rank in graph.members}
            graph = graph.with_member(100 + step)
            if len(before) > 2 and not graph.directed:
                assert all(graph.degree(rank) == degree for rank, degree in before.items())
        assert graph.is_connected()


def test_the_order_of_leaving_does_not_matter() -> None:
    grid = Graph(tuple(range(9)), frozenset({(r, r + 1) for r in range(8) if r % 3 < 2} | {(r, r + 3) for r in range(6)}))
    assert grid.without(4, 5, 1) == grid.without(1, 4, 5)
    assert grid.without(4).neighbours(1) == [0, 2, 3, 7]  # 1, 3, 5, 7 in a ring


@given(graphs(directed=False), st.data())
def test_a_spanning_tree_is_one_of_shortest_ways(graph: Graph, data: st.DataObject) -> None:
    root = data.draw(st.sampled_from(graph.members))
    tree = graph.spanning_tree(root)
    assert tree.edges <= graph.edges
    assert nx.is_tree(as_networkx(tree))
    ways = nx.single_source_shortest_path_length
    assert ways(as_networkx(tree), root) == ways(as_networkx(graph), root)
    assert tree == graph.spanning_tree(root)


@given(graphs(directed=False), st.integers(0, 2**32 - 1))
def test_metropolis_keeps_the_mean_and_contracts_at_the_second_eigenvalue(graph: Graph, seed: int) -> None:
    mixing = graph.matrix("metropolis")
    assert np.array_equal(mixing, mixing.T)
    np.testing.assert_allclose(mixing.sum(axis=0), 1.0, atol=1e-12)
    assert (mixing >= -1e-15).all()
    rho = 1.0 - graph.spectral_gap()
    if len(graph.members) > 1:
        assert -1e-12 <= rho < 1.0, "connected, so every round removes some disagreement"
        assert disagreement_left([mixing]) == pytest.approx(rho, abs=1e-9)
    x = np.random.default_rng(seed).normal(size=len(graph.members))
    mean = x.mean()
    for _ in range(5):
        mixed = mixing @ x
        assert mixed.mean() == pytest.approx(mean, abs=1e-12)
        assert np.linalg.norm(mixed - mean) <= rho * np.linalg.norm(x - mean) + 1e-12
        x = mixed


@given(graphs(directed=True))
def test_push_weights_keep_the_total(graph: Graph) -> None:
    mixing = graph.matrix("push")
    np.testing.assert_allclose(mixing.sum(axis=0), 1.0, atol=1e-12)
    x, y = np.arange(len(graph.members), dtype=float), np.ones(len(graph.members))
    for _ in range(400):
        x, y = mixing @ x, mixing @ y
    np.testing.assert_allclose(x / y, (len(graph.members) - 1) / 2, atol=0.05)


def test_uniform_weights_want_equal_degrees() -> None:
    line = Graph((0, 1, 2), frozenset({(0, 1), (1, 2)}))
    with pytest.raises(Misuse, match="1 to 2 neighbours: expected equally many for everybody; use metropolis"):
        line.weights("uniform")
    with pytest.raises(Misuse, match="did you mean 'metropolis'"):
        line.weights("metropolitan")
    with pytest.raises(Misuse, match="directed graph: expected an undirected one"):
        Graph((0, 1), frozenset({(0, 1)}), directed=True).weights()


def test_strange_edges_and_ranks() -> None:
    with pytest.raises(Misuse, match="edge from worker 1 to itself"):
        Graph((0, 1), frozenset({(1, 1)}))
    with pytest.raises(Misuse, match="edge 0-7: expected members; 7 is none"):
        Graph((0, 1), frozenset({(0, 7)}))
    pair = Graph((0, 1), frozenset({(1, 0)}))
    for call in (pair.neighbours, pair.without, pair.spanning_tree):
        with pytest.raises(Misuse, match="worker 4: expected a member"):
            call(4)
    with pytest.raises(Misuse, match="no member yet"):
        pair.with_member(1)
