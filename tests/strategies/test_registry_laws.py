"""Every strategy of the registry, through the public conformance suite: permuted, delayed, lost and repeated deliveries,
workers of different speeds, deaths and joins at any moment."""

from __future__ import annotations

import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.strategies import REGISTRY, parse
from taut.testing import check_strategy

VARIANTS = [
    *REGISTRY,
    "ssp:0",
    "sync:backup=1",
    "sync:schedule=tree",
    "sync:schedule=halving-doubling",
    "averaging:every=1",
    "diloco:every=3,fragments=2,overlap=1",
    "diloco:every=3,delayed=true",
    "diloco:every=3,eager=true",
    "diloco:every=4,fragments=2,overlap=1,quorum=2",
    "sparseloco:every=3",
    "noloco:every=2",
    "server:shards=2,push=2,pull=3",
    "dpsgd:momentum=quasi-global",
    "dpsgd:tracking=true",
]


@pytest.mark.parametrize("written", VARIANTS)
@given(seed=st.integers(0, 2**32), lossy=st.booleans(), workers=st.integers(1, 6))
@settings(max_examples=some(12), deadline=None)
def test_nobody_waits_for_ever_and_replicas_agree_where_promised(
    written: str, seed: int, lossy: bool, workers: int
) -> None:
    options = {"workers": workers, "lossy": lossy} if parse(written).is_method else {}
    check_strategy(written, seed, **options)


RING = ("dpsgd", "adpsgd", "choco", "gossip", "relaysgd", "sgp", "averaging:every=2", "relay")


@pytest.mark.parametrize("written", RING)
@given(seed=st.integers(0, 2**32), workers=st.integers(2, 7))
@settings(max_examples=some(6), deadline=None)
def test_sparse_graphs_survive_deaths_and_joins(written: str, seed: int, workers: int) -> None:
    check_strategy(written, seed, topology="ring", workers=workers)


CODED = [
    ("sync", "topk:density=0.1"),
    ("sync", "onebit"),
    ("choco", "int8"),
    ("choco", "randomk:density=0.2"),
    ("dpsgd", "topk:density=0.1"),
    ("sgp", "sign"),
    ("adpsgd", "qsgd"),
    ("gossipgrad", "int8"),
    ("relaysgd", "int8"),
    ("sparseloco:every=2", "dense"),
    ("sparseloco:every=2,outer_rate=0.7", "topk:density=0.1"),
]


@pytest.mark.parametrize(("written", "codec"), CODED)
@given(seed=st.integers(0, 2**32), lossy=st.booleans(), workers=st.integers(1, 6))
@settings(max_examples=some(6), deadline=None)
def test_vectors_may_be_written_down_with_a_codec(written: str, codec: str, seed: int, lossy: bool, workers: int) -> None:
    check_strategy(written, seed, codec=codec, lossy=lossy, workers=workers)
