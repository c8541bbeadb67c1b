"""Topologies: which workers are neighbours.

``parse("torus:3x4")`` gives a shape; ``shape.wire(members, round)`` gives the graph over those members; ``check(shape,
workers)`` refuses before the start a shape that does not fit. ``Topology`` is the graph that a user builds by hand.
"""

from taut.topologies.graph import Graph
from taut.topologies.registry import REGISTRY, check, parse, spec
from taut.topologies.shape import Shape
from taut.topologies.user_topology import Topology

__all__ = ["REGISTRY", "Graph", "Shape", "Topology", "check", "parse", "spec"]
