"""What the tests of topologies draw from: shapes, members, graphs."""

from __future__ import annotations

from hypothesis import strategies as st

from taut.topologies import Graph, Shape, parse

SPECS = (
    "complete",
    "ring",
    "torus",
    "torus:3x4",
    "torus:rows=2",
    "torus:columns=5",
    "star",
    "line",
    "tree",
    "tree:branching=1",
    "tree:branching=3",
    "hypercube",
    "exponential",
    "exponential:directed=no",
    "one-peer",
    "random",
    "random:degree=2,seed=5",
    "random:degree=6",
    "matcha",
    "matcha:budget=0.3,seed=1,base=torus:3x4",
    "matcha:base=star",
    "edges:0-1,1-2,2-3,3-0,2-4,4-5",
    "edges:0>1,1>2,2>0,2>3,3>1",
)
shapes = st.sampled_from([parse(spec) for spec in SPECS])
fixed = st.sampled_from([shape for shape in map(parse, SPECS) if not shape.varies])
# Few and close to each other, as after some deaths, or any ranks at all, as after a week of coming and going.
members = st.one_of(
    st.sets(st.integers(0, 20), min_size=1, max_size=20),
    st.sets(st.integers(0, 10_000), min_size=1, max_size=24),
    st.integers(1, 33).map(lambda count: set(range(count))),
).map(sorted)


@st.composite
def graphs(draw: st.DrawFn, directed: bool | None = None) -> Graph:
    """A connected graph: a random tree (both ways, or a ring, where it is directed) and some edges more."""
    ranks = draw(st.lists(st.integers(0, 60), min_size=1, max_size=14, unique=True))
    one_way = draw(st.booleans()) if directed is None else directed
    if one_way:
        edges = {(a, b) for a, b in zip(ranks, ranks[1:] + ranks[:1], strict=True) if a != b}
    else:
        edges = {(ranks[draw(st.integers(0, index - 1))], ranks[index]) for index in range(1, len(ranks))}
    if len(ranks) > 1:
        pairs = st.tuples(st.sampled_from(ranks), st.sampled_from(ranks)).filter(lambda pair: pair[0] != pair[1])
        edges |= draw(st.sets(pairs, max_size=12))
    return Graph(tuple(ranks), frozenset(edges), one_way)


def union_over(shape: Shape, ranks: list[int], rounds: int) -> set[tuple[int, int]]:
    return {edge for round in range(rounds) for edge in shape.wire(ranks, round).edges}
