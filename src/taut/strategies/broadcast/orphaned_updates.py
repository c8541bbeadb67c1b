"""Pass on a dead origin's updates to neighbours that lack them, and merge the updates that are kept for this purpose.

A worker keeps others' updates until every worker has them, for an origin may die. While a worker is cut off, they pile
up. Only the origin knows how far it ever sent to each worker, so its reports say which of its updates it has merged: no
worker has received part of such a span, nor ever will, since the origin sends it as one. The others merge the same ones.

A worker passes on a dead origin's stream in one message, from the last update that the neighbour has to the last one
that is here. So no worker ever receives part of a span that another may have merged, and the pieces always fit.
"""

from __future__ import annotations

from collections.abc import Iterable

from taut.core.events import Action, Send
from taut.core.messages import Span, Updates
from taut.strategies.broadcast.log import Entry, Log, Merge, merged
from taut.strategies.broadcast.state import BroadcastState
from taut.strategies.delivery.retransmission import PeerLink

MAX_SPANS = 256
TOGETHER_NBYTES = 1 << 20  # longer streams are merged before they are passed on
MOST_MERGED = 16  # spans, in one report


def merged_spans(log: Log) -> list[tuple[int, int]]:
    """Return the longest spans that were merged, for a report.

    >>> log = Log()
    >>> log.append(1, 1, b"a"); log.append(2, 9, b"b"); log.append(10, 11, b"c")
    >>> merged_spans(log)
    [(2, 9), (10, 11)]
    """
    spans = [(entry.lo, entry.hi) for entry in log.entries if entry.hi > entry.lo]
    return sorted(sorted(spans, key=lambda span: span[0] - span[1])[:MOST_MERGED])


def follow(log: Log, spans: Iterable[tuple[int, int]], merge: Merge, limit_nbytes: int) -> None:
    """Merge the spans that the origin has merged, if all of their updates are here."""
    for lo, hi in spans:
        if log.floor < lo <= hi <= log.head:
            log.unite(lo, hi, merge, limit_nbytes)


def pass_on(
    state: BroadcastState, rank: int, link: PeerLink, now: float, merge: Merge, limit_nbytes: int, actions: list[Action]
) -> None:
    """Send the neighbour the updates of dead origins that it lacks."""
    for origin in state.gone:
        log = state.log_of(origin)
        lacks = link.seen.get(origin, 0)
        if link.blocked or origin not in link.sealed or lacks >= log.head or lacks < log.floor:
            continue
        upto, until_s = link.relayed.get(origin, (lacks, float("-inf")))
        if upto > lacks and now <= until_s:
            continue
        if not log.boundary(lacks):
            continue  # no worker can have received just so many: the report is wrong
        entries = _together(list(log.after(lacks)), merge, limit_nbytes)
        nbytes = sum(len(entry.payload) for entry in entries)
        link.relayed[origin] = (entries[-1].hi, now + link.rto_s + link.rate.wait_s(nbytes))
        spans = [Span(origin, entry.lo, entry.hi) for entry in entries]
        actions.append(Send(rank, Updates(link.round, 0, spans), [entry.payload for entry in entries]))


def _together(entries: list[Entry], merge: Merge, limit_nbytes: int) -> list[Entry]:
    """Return entries for one message, merged if they are many. If even the merged payload is too long, return as many
    as fit; another worker may then receive part of a span that others have merged."""
    if len(entries) <= MAX_SPANS and sum(len(entry.payload) for entry in entries) <= TOGETHER_NBYTES:
        return entries
    payload = merged(entries, merge, limit_nbytes)
    if payload is not None:
        return [Entry(entries[0].lo, entries[-1].hi, payload)]
    room, count = limit_nbytes, 0
    while count < min(len(entries), MAX_SPANS) and len(entries[count].payload) <= room:
        room -= len(entries[count].payload)
        count += 1
    return entries[: max(1, count)]
