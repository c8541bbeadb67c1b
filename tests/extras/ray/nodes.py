"""Nodes of the tests' Ray cluster."""

from __future__ import annotations

from typing import Any

from ray.cluster_utils import Cluster

STORE = 100 << 20


def add_node(cluster: Cluster) -> Any:
    """Add a node with one CPU."""
    return cluster.add_node(num_cpus=1, object_store_memory=STORE)
