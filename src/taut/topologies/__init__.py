"""Who is wired to whom."""

from taut.topologies.graph import Topology

__all__ = ["Topology"]
