"""The picture of a run's topology: points and edges for the page. Pure."""

from __future__ import annotations

from functools import lru_cache

from taut.dashboard.records import Spot, TopologyMap
from taut.errors import TautError
from taut.topologies import parse
from taut.topologies.draw import points

MOST_DRAWN, MOST_EDGES = 200, 3_000


@lru_cache(maxsize=4)
def topology_map(topology: str, ranks: tuple[int, ...]) -> TopologyMap:
    """Return the graph that these workers form under ``topology``, as the settings name it.

    >>> [spot.rank for spot in topology_map("ring", (0, 1, 3)).spots], topology_map("ring", (0, 1, 3)).edges
    ([0, 1, 3], ((0, 1), (0, 3), (1, 3)))
    >>> topology_map("", (0,)).note
    'this strategy has no topology'
    """
    if not topology:
        return TopologyMap(note="this strategy has no topology")
    if not ranks:
        return TopologyMap(note="no worker is there")
    if len(ranks) > MOST_DRAWN:
        return TopologyMap(note=f"{len(ranks)} workers are more than the {MOST_DRAWN} that a picture can show")
    try:
        shape = parse(topology)
        graph = shape.union(ranks)
        at = points(shape, graph)
    except (TautError, ValueError) as error:
        return TopologyMap(note=f"{topology}: {error}"[:200])
    if len(graph.edges) > MOST_EDGES:
        edges: tuple[tuple[int, int], ...] = ()
        note = f"{len(graph.edges)} edges, which are not drawn"
    else:
        edges, note = tuple(sorted(graph.edges)), ""
    left, top = min(x for x, _ in at.values()), max(y for _, y in at.values())
    size = max(max(x for x, _ in at.values()) - left, top - min(y for _, y in at.values())) or 1.0
    spots = tuple(
        Spot(rank, round((x - left) / size, 4), round((top - y) / size, 4)) for rank, (x, y) in sorted(at.items())
    )
    return TopologyMap(spots, edges, graph.directed, note)
