"""Asynchronous training: no worker waits, every update reaches every worker, delays are unbounded.

    w_i  <-  w_i + update_j     whenever update_j arrives, in any order

Staleness is measured (``BroadcastState.staleness``, in own iterations) and the codec makes updates smaller as it grows.
Papers: Strom 2015 (threshold updates, peer to peer); the y² cluster.
"""

from __future__ import annotations

from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.info import ADVISED, Completeness, StrategyInfo, Variant


class Asynchronous(Broadcast):
    """``--strategy async``: the reliable broadcast, without waiting.

    >>> strategy = Asynchronous(merge=b"".join)
    >>> state = strategy.start(rank=0, synced=True)
    >>> from taut.core.events import Published
    >>> strategy.on(state, Published(b"update"), now=0.0)   # alone: no neighbour
    []
    """

    name = "async"
    info = StrategyInfo(
        Completeness.UNBOUNDED,
        (Variant(codecs=(ADVISED,)), Variant(topologies=(ADVISED,))),
        on_sparse="relay",
        floods=True,
    )
    complete = True
