"""Named shapes: connected over any members, the same for everybody, and what each promises."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from topology_cases import fixed, graphs, members, shapes, union_over

from taut.topologies import Shape, parse, spec
from taut.topologies.shape import ranks_by_position
from taut.topologies.shapes import matcha
from taut.topologies.shapes.matcha import Matcha, plan
from taut.topologies.shapes.random_regular import RandomRegular
from taut.topologies.shapes.torus import Torus


@settings(max_examples=some(300))
@given(shapes, members, st.integers(0, 1000))
def test_connected_over_any_members(shape: Shape, ranks: list[int], round: int) -> None:
    graph, union = shape.wire(ranks, round), shape.union(ranks)
    assert graph.members == union.members == tuple(ranks)
    assert union.is_connected()
    assert graph.edges <= union.edges
    if not shape.varies:
        assert graph == union
    if not union.directed:
        assert all(a in union.neighbours(b) for a in ranks for b in union.neighbours(a))


@given(shapes, members, st.integers(0, 50), st.randoms())
def test_the_same_for_everybody(shape: Shape, ranks: list[int], round: int, lots: object) -> None:
    """From the written form and the members alone, in whatever order they were heard of."""
    shuffled = list(ranks)
    lots.shuffle(shuffled)  # type: ignore[attr-defined]
    assert parse(spec(shape)) == shape
    assert parse(spec(shape)).wire(shuffled, round) == shape.wire(ranks, round)


@given(fixed, members)
def test_mixing_matrices_are_doubly_stochastic(shape: Shape, ranks: list[int]) -> None:
    graph = shape.wire(ranks)
    mixing = graph.matrix("push" if graph.directed else "metropolis")
    np.testing.assert_allclose(mixing.sum(axis=0), 1.0, atol=1e-12)
    if not graph.directed or shape.name == "exponential":  # everybody sends to and hears from equally many
        np.testing.assert_allclose(mixing.sum(axis=1), 1.0, atol=1e-12)
    if shape.name == "exponential" and graph.directed:
        np.testing.assert_allclose(mixing, graph.matrix("uniform"), atol=1e-15)
    assert graph.spectral_gap("push" if graph.directed else "metropolis") > 0.0


@given(members, st.data())
def test_few_change_seats_when_one_leaves(ranks: list[int], data: st.DataObject) -> None:
    count = len(ranks)
    before = ranks_by_position(range(count))
    assert before == list(range(count))
    if count > 1:
        leaver = data.draw(st.integers(0, count - 1))
        after = ranks_by_position([rank for rank in range(count) if rank != leaver])
        assert sum(a != b for a, b in zip(before, after, strict=False)) <= 1
        back = ranks_by_position([*(rank for rank in range(count) if rank != leaver), count])
        assert back == [count if rank == leaver else rank for rank in range(count)]
    assert sorted(ranks_by_position(ranks)) == ranks


@given(st.integers(1, 200))
def test_a_torus_is_nearly_square(workers: int) -> None:
    rows, columns = Torus().size(workers)
    assert (rows - 1) * columns < workers <= rows * columns
    assert rows <= columns <= 2 * rows + 1
    graph = Torus().wire(range(workers))
    assert max(graph.degree(rank) for rank in range(workers)) <= 4


def test_a_torus_is_what_it_should_be() -> None:
    graph = Torus(3, 4).wire(range(12))
    assert graph.neighbours(5) == [1, 4, 6, 9]
    assert {graph.degree(rank) for rank in range(12)} == {4}
    assert graph.diameter() == 3
    assert graph.spectral_gap() == pytest.approx(0.4)  # 1 - (1 + 2 cos(2 pi / 4) + 2) / 5: the longer side's first wave


@pytest.mark.parametrize("workers", [3, 8, 17])
def test_a_ring_contracts_as_known(workers: int) -> None:
    gap = parse("ring").wire(range(workers)).spectral_gap("uniform")
    assert gap == pytest.approx(2 / 3 * (1 - math.cos(2 * math.pi / workers)))


@pytest.mark.parametrize("workers", [1, 2, 4, 16, 64])
def test_hypercube(workers: int) -> None:
    graph = parse("hypercube").wire(range(workers))
    assert {graph.degree(rank) for rank in range(workers)} == {workers.bit_length() - 1}
    assert graph.diameter() == workers.bit_length() - 1


@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.data())
def test_one_peer_gives_the_exact_mean_for_powers_of_two(power: int, seed: int, data: st.DataObject) -> None:
    workers, shape = 2**power, parse("one-peer")
    first = data.draw(st.integers(0, 9)) * power  # any whole period
    x = np.random.default_rng(seed).integers(-1000, 1000, workers).astype(float)
    mean = x.mean()
    for round in range(first, first + shape.period(workers)):
        graph = shape.wire(range(workers), round)
        assert all(len(graph.outward(rank)) == len(graph.inward(rank)) == 1 for rank in range(workers))
        x = graph.matrix("uniform") @ x
    assert (x == mean).all()  # sums of whole numbers, halved: exact in floating point
    assert shape.period(workers) == power


@given(st.sampled_from([3, 5, 6, 12]))
def test_one_peer_only_comes_near_the_mean_for_others(workers: int) -> None:
    shape = parse("one-peer")
    x = np.eye(workers)
    for round in range(shape.period(workers)):
        x = shape.wire(range(workers), round).matrix("uniform") @ x
    assert np.abs(x - 1 / workers).max() > 1e-3
    np.testing.assert_allclose(x.mean(axis=0), 1 / workers)


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8, 13, 24])
def test_random_graphs_are_regular(workers: int) -> None:
    for degree in range(2, workers + 2):
        graph = RandomRegular(degree, seed=workers).wire(range(workers))
        wanted = min(degree, workers - 1)
        odd_ones = [rank for rank in range(workers) if graph.degree(rank) != wanted]
        assert len(odd_ones) == workers * wanted % 2
        assert all(abs(graph.degree(rank) - wanted) == 1 for rank in odd_ones)
        assert graph.is_connected()


def test_random_graphs_depend_on_the_seed_and_mix_well() -> None:
    first, second = (RandomRegular(4, seed).wire(range(64)) for seed in (0, 1))
    assert first != second
    ring = parse("ring").wire(range(64)).spectral_gap()
    assert min(graph.spectral_gap("uniform") for graph in (first, second)) > 20 * ring


def test_a_random_graph_mostly_stays_when_one_leaves() -> None:
    before, after = (RandomRegular(4).wire([r for r in range(200) if r != gone]) for gone in (-1, 77))
    kept = len(before.edges & after.edges) / len(before.edges)
    assert kept > 0.9


@given(graphs(directed=False), st.sampled_from([0.1, 0.35, 0.5, 0.9, 1.0]))
@settings(max_examples=some(100))
def test_matchings_are_matchings_and_respect_the_budget(graph: object, budget: float) -> None:
    found, probabilities = plan(graph, budget)  # type: ignore[arg-type]
    highest = max(graph.degree(rank) for rank in graph.members)  # type: ignore[attr-defined]
    assert len(found) <= highest + 1, "Vizing's bound"
    assert sum(map(len, found)) == len(graph.edges)  # type: ignore[attr-defined]
    assert frozenset().union(*found) == graph.edges  # type: ignore[attr-defined]
    for matching in found:
        assert max(Counter(rank for edge in matching for rank in edge).values()) == 1
    assert sum(probabilities) <= budget * len(found) + 1e-9
    assert all(0 < p <= 1 for p in probabilities)


def test_dense_graphs_take_no_more_matchings_than_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the simple way of colouring an edge often fails, and others must make room."""
    made_room = []
    real = matcha._make_room
    monkeypatch.setattr(matcha, "_make_room", lambda *edge: (made_room.append(edge), real(*edge)))
    for workers in range(4, 17):
        for degree in range(2, workers):
            graph = RandomRegular(degree, seed=workers).wire(range(workers))
            found = matcha.matchings(graph)
            assert len(found) <= max(map(graph.degree, range(workers))) + 1
            assert sorted(edge for matching in found for edge in matching) == sorted(graph.edges)
            for matching in found:
                assert len({rank for edge in matching for rank in edge}) == 2 * len(matching)
    assert len(made_room) > 100


@pytest.mark.parametrize("base", ["ring", "torus", "star", "complete"])
def test_matcha_uses_every_edge_in_time_and_as_often_as_allowed(base: str) -> None:
    shape = parse(f"matcha:budget=0.4,seed=3,base={base}")
    assert isinstance(shape, Matcha)
    rounds, ranks = 600, list(range(9))
    assert union_over(shape, ranks, rounds) == shape.union(ranks).edges
    found, _ = plan(shape.union(ranks), 0.4)
    used = sum(matching <= shape.wire(ranks, round).edges for round in range(rounds) for matching in found)
    allowed = 0.4 * len(found) * rounds
    assert used == pytest.approx(allowed, abs=4 * math.sqrt(allowed))
    assert union_over(shape, ranks, 1) != union_over(shape, ranks, rounds)


def test_matcha_prefers_the_bridge() -> None:
    """Two cliques of six and an edge between them: that edge carries everything, and is used more than others."""
    clique = [(a, b) for a in range(6) for b in range(a)]
    graph = parse("edges:" + ",".join(f"{a}-{b}" for a, b in [*clique, *((a + 6, b + 6) for a, b in clique), (0, 6)]))
    found, probabilities = plan(graph.wire(range(12)), 0.3)
    (bridge,) = [number for number, matching in enumerate(found) if (0, 6) in matching]
    assert probabilities[bridge] == max(probabilities) > 0.6
