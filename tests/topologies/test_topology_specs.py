"""What is written down: names, options, files; and what does not fit, said before the start."""

from __future__ import annotations

import json

import networkx as nx
import pytest
from topology_cases import SPECS

import taut
from taut.errors import Misuse
from taut.topologies import check, parse, spec
from taut.topologies.shapes.edge_list import Edges, from_text, resolve
from taut.topologies.shapes.matcha import Matcha
from taut.topologies.shapes.random_regular import RandomRegular
from taut.topologies.shapes.torus import Torus


@pytest.mark.parametrize("text", SPECS)
def test_written_and_read_back(text: str) -> None:
    shape = parse(text)
    assert parse(spec(shape)) == shape
    assert hash(parse(spec(shape))) == hash(shape)


def test_spellings() -> None:
    assert parse("torus:rows=3,columns=4") == parse(" torus : 3 x 4 ") == Torus(3, 4)
    assert parse({"name": "random", "degree": 4, "seed": 7}) == RandomRegular(4, 7)
    assert parse("matcha:budget=0.25,base=random:degree=4,seed=9") == Matcha(0.25, 0, RandomRegular(4, 9))
    assert parse({"name": "matcha", "base": {"name": "torus", "rows": 2}}) == Matcha(base=Torus(rows=2))
    assert parse("edges:2-0,0-1,1-0") == Edges(((0, 1), (0, 2)))
    assert parse("edges:0>1,1->0") == Edges(((0, 1), (1, 0)), directed=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rign", "topology 'rign': expected one of complete, ring.*did you mean 'ring'"),
        ("", "topology ''"),
        ("torus:row=3", "'row': expected rows, columns; did you mean 'rows'"),
        ("torus:rows=three", "rows=three: expected a whole number"),
        ("torus:rows=0", "rows=0"),
        ("torus:3", "expected name:key=value"),
        ("torus:rows=3,rows=4", "rows once"),
        ("ring:3x4", "expected name:key=value"),
        ("tree:branching=0", "branching=0"),
        ("random:degree=1", "degree=1"),
        ("matcha:budget=0", "budget=0: expected a share above 0"),
        ("matcha:budget=nan", "budget=nan"),
        ("matcha:base=one-peer", "base=one-peer: expected an undirected graph that does not vary"),
        ("matcha:base=exponential", "try base=torus or base=exponential:directed=no"),
        ("exponential:directed=perhaps", "expected yes or no"),
        ("edges:", "edge ''"),
        ("edges:0-1,1_2", "edge '1_2'"),
        ("edges:0-0", "edge 0-0: expected two different workers"),
        ("edges:0-1,1>2", "with and without a direction"),
        ("file:graph.txt", "files are read by"),
    ],
)
def test_wrong_words(text: str, says: str) -> None:
    with pytest.raises(Misuse, match=says):
        parse(text)


def test_wrong_tables() -> None:
    for given in ({"rows": 3}, 7, {"name": "torus", "rows": True}, {"name": "torus", "rows": 2.5}):
        with pytest.raises(Misuse):
            parse(given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "workers", "says"),
    [
        ("torus:3x5", 16, "3 x 5 = 15 workers; for 16 workers: 4 x 4, 2 x 8; or leave rows and columns out"),
        ("torus:rows=3", 13, "that 3 divides; for 13 workers: only 1 x 13, a ring; or leave"),
        ("hypercube", 12, "hypercube with 12 workers: expected a power of two; use 8 or 16 workers"),
        ("random:degree=4", 4, "a degree below 4; try degree=3"),
        ("random:degree=3", 7, "to be even.*try degree=2 or 4, or 8 workers"),
        ("edges:0-1,2-3", 4, r"2 parts: \[0, 1\], \[2, 3\]: expected a connected one; add an edge.*0-2"),
        ("edges:0-1,1-9", 4, "edge 1-9 with 4 workers: expected ranks from 0 to 3"),
        ("edges:0-1,1-2", 4, r"2 parts: \[0, 1, 2\], \[3\]"),
        (
            "edges:0>1,1>2",
            3,
            "nothing from worker 1 reaches worker 0: expected a strongly connected one; add the edge 1>0",
        ),
        ("matcha:base=hypercube", 6, "a power of two"),
        ("complete", 5000, "12497500 edges: expected at most 2048"),
        ("ring", 0, "at least 1"),
    ],
)
def test_what_does_not_fit_is_said_at_the_start(text: str, workers: int, says: str) -> None:
    with pytest.raises(Misuse, match=says):
        check(text, workers)
    if workers and workers < 1000:
        parse(text).wire(range(workers))  # but later, when some have left, the run goes on


@pytest.mark.parametrize("text", [text for text in SPECS if not text.startswith("edges")])
def test_what_fits_starts(text: str) -> None:
    assert check(text, 12 if "hypercube" not in text and "columns=5" not in text else {"h": 8, "t": 10}[text[0]])


def test_files() -> None:
    web = nx.cycle_graph(5)
    for name in ("edges", "links"):
        text = json.dumps(nx.node_link_data(web, edges=name))
        assert from_text(text).wire(range(5)) == parse("ring").wire(range(5))
    directed = json.dumps(nx.node_link_data(nx.DiGraph([(0, 1), (1, 0)]), edges="edges"))
    assert from_text(directed) == Edges(((0, 1), (1, 0)), directed=True)
    lines = "\n".join(nx.generate_edgelist(web))
    assert "{}" in lines, "networkx writes attributes after the ranks"
    assert from_text("# a remark\n\n" + lines + "\n") == from_text("0-1\n1,2\n2 3 # here\n3\t4\n4 0 0.5\n")
    assert resolve("file:x", lambda path: {"x": "0>1\n1 -> 0"}[path]) == "edges:0>1,1>0"
    assert resolve("torus:3x4", lambda path: "") == "torus:3x4"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no edges"),
        ("0 1\n1 b\n", "line 2: '1 b'"),
        ("{", "node_link_data"),
        ('{"nodes": []}', "no list of edges"),
        ('{"edges": [{"source": "a", "target": 1}]}', "node 'a'.*convert_node_labels_to_integers"),
        ('{"edges": [{"source": 1}]}', "node None"),
        ("0 1\n0>1", "with and without a direction"),
        ("2 2", "edge 2-2"),
    ],
)
def test_wrong_files(text: str, says: str) -> None:
    with pytest.raises(Misuse, match=says):
        resolve("file:g.txt", lambda path: text)


def test_a_topology_built_by_hand_is_the_same_kind_of_graph() -> None:
    topology: taut.Topology[str] = taut.Topology()
    for name in "abcd":
        topology.worker(name)
    for a, b in [(0, 1), (1, 2), (2, 3)]:
        topology.channel(b, a)
    assert topology.wiring() == parse("line").wire(range(4))
    topology.channel(3, 0)
    assert topology.wiring() == parse("ring").wire(range(4))
    assert topology.neighbours(0) == [1, 3]
    topology.worker("e")
    with pytest.raises(Misuse, match="2 parts"):
        topology.check()


def test_a_topology_of_a_named_shape() -> None:
    topology = taut.Topology.shaped("torus:2x3", "abcdef")
    assert topology.wiring() == Torus(2, 3).wire(range(6))
    with pytest.raises(Misuse, match="2 x 3 = 6"):
        taut.Topology.shaped("torus:2x3", "abcde")
    with pytest.raises(Misuse, match="undirected"):
        taut.Topology.shaped("exponential", "abcde")
