"""No method of the gossip family ever deadlocks, whatever dies, joins, ends, or is lost on the way (laws 4 and 7)."""

from __future__ import annotations

import pytest
from examples import some
from gossip_histories import live_through
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.strategies.api import Method
from taut.strategies.gossip.adpsgd import ADPSGD
from taut.strategies.gossip.choco import Choco
from taut.strategies.gossip.dpsgd import DPSGD
from taut.strategies.gossip.gossip import Gossip
from taut.strategies.gossip.gossipgrad import GossipGraD
from taut.strategies.gossip.noloco import NoLoCo
from taut.strategies.gossip.relaysgd import RelaySGD
from taut.strategies.gossip.sgp import SGP

CASES: dict[str, tuple[Method, tuple[str, ...]]] = {
    "gossip": (Gossip(), ("ring", "torus", "exponential", "one-peer", "matcha")),
    "dpsgd": (DPSGD(), ("ring", "star", "matcha", "complete", "random")),
    "dpsgd uniform": (DPSGD(mixing="uniform"), ("ring", "one-peer", "exponential")),
    "dpsgd tracking": (DPSGD(tracking=True, momentum="quasi-global"), ("ring", "matcha")),
    "adpsgd": (ADPSGD(), ("ring", "complete", "matcha")),
    "sgp": (SGP(), ("exponential", "one-peer", "star", "edges:0>1,1>2,2>0,0>2")),
    "sgp overlap": (SGP(overlap=2), ("exponential", "one-peer", "ring")),
    "gossipgrad": (GossipGraD(), ("complete",)),
    "noloco": (NoLoCo(every=2), ("complete",)),
    "choco": (Choco(), ("ring", "star", "torus")),
    "relaysgd": (RelaySGD(), ("ring", "tree", "torus")),
}
CELLS = [(case, topology) for case, (_, topologies) in CASES.items() for topology in topologies]


@pytest.mark.parametrize(("case", "topology"), CELLS, ids=[f"{case} on {topology}" for case, topology in CELLS])
@settings(max_examples=some(6), deadline=None)
@given(seed=st.integers(0, 10**6), lossy=st.booleans())
def test_everybody_comes_to_the_end(case: str, topology: str, seed: int, lossy: bool) -> None:
    method, _ = CASES[case]
    workers = 3 if topology.startswith("edges") else 5
    live_through(method, topology, seed, workers=workers, lossy=lossy)


@pytest.mark.parametrize("case", CASES)
def test_one_worker_alone_trains_and_ends(case: str) -> None:
    method, topologies = CASES[case]
    if not topologies[0].startswith("edges"):
        live_through(method, topologies[0], seed=1, workers=1)
