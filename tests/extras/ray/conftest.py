"""A real Ray cluster of three nodes on this machine, for the tests of `make test-ray`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

# Read when ray is imported: no word to the outside.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own
    from nodes import STORE, add_node
    from ray.cluster_utils import Cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.timeout(600))
        item.add_marker(pytest.mark.filterwarnings("ignore"))  # Ray leaves sockets and files open


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three nodes with one CPU each. A test that takes one away puts another one in its place."""
    head = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            add_node(made)
        yield made
    finally:
        made.shutdown()


@pytest.fixture
def driver(cluster: Cluster) -> Iterator[Any]:
    """This process, connected to the cluster."""
    import ray
    import ray.train

    ray.init(address=cluster.address, log_to_driver=False)
    try:
        yield ray
    finally:
        ray.shutdown()
