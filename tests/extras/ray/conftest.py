"""A real Ray cluster of several nodes on this machine, for the tests of `make test-ray`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# Read when ray is imported: no word to the outside, and no colours between lines.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_COLOR_PREFIX": "0"}
os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
STORE = 100 << 20

from ray.cluster_utils import Cluster  # noqa: E402


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three nodes with one CPU each. A test that takes one away puts another one in its place."""
    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE},
    )
    try:
        for _ in range(2):
            made.add_node(num_cpus=1, object_store_memory=STORE)
        yield made
    finally:
        made.shutdown()
