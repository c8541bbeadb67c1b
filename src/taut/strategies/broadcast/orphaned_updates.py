"""What workers keep of each other's streams: handed on when the origin has died, merged when it says that it may be.

A worker keeps others' updates until everybody has them, for an origin may die. While somebody is cut off, that grows; so
the origin, who alone knows how far it ever sent to whom, says in its reports which of its updates it has merged (nobody
stands between them, nor will: it sends them as one from now on), and the others merge the same ones.

What is left of a dead origin's stream is handed on whole, from where a neighbour stands to the end of what is here, in
one message. So nobody ever stands within what another may have merged, and the pieces always fit.
"""

from __future__ import annotations

from collections.abc import Iterable

from taut.core.events import Action, Send
from taut.core.messages import Span, Updates
from taut.strategies.broadcast.log import Entry, Log, Merge, merged
from taut.strategies.broadcast.state import BroadcastState
from taut.strategies.delivery.retransmission import PeerLink

MAX_SPANS = 256
TOGETHER_NBYTES = 1 << 20  # so much is handed on as it is; what is more is merged first
MOST_MERGED = 16  # spans, in one report


def merged_spans(log: Log) -> list[tuple[int, int]]:
    """The longest of those that were merged, for a report.

    >>> log = Log()
    >>> log.append(1, 1, b"a"); log.append(2, 9, b"b"); log.append(10, 11, b"c")
    >>> merged_spans(log)
    [(2, 9), (10, 11)]
    """
    spans = [(entry.lo, entry.hi) for entry in log.entries if entry.hi > entry.lo]
    return sorted(sorted(spans, key=lambda span: span[0] - span[1])[:MOST_MERGED])


def follow(log: Log, spans: Iterable[tuple[int, int]], merge: Merge, limit_nbytes: int) -> None:
    """Merge what the origin has merged, where it is here, and in pieces."""
    for lo, hi in spans:
        if log.floor < lo <= hi <= log.head:
            log.unite(lo, hi, merge, limit_nbytes)


def pass_on(
    state: BroadcastState, rank: int, link: PeerLink, now: float, merge: Merge, limit_nbytes: int, actions: list[Action]
) -> None:
    """Hand the neighbour what it lacks of the dead."""
    for origin in state.gone:
        log = state.log_of(origin)
        lacks = link.seen.get(origin, 0)
        if link.blocked or origin not in link.sealed or lacks >= log.head or lacks < log.floor:
            continue
        upto, when = link.relayed.get(origin, (lacks, float("-inf")))
        if upto > lacks and now - when <= link.rto_s:
            continue
        if not log.boundary(lacks):
            continue  # nobody can stand there: it does not tell the truth
        entries = _together(list(log.after(lacks)), merge, limit_nbytes)
        link.relayed[origin] = (entries[-1].hi, now)
        spans = [Span(origin, entry.lo, entry.hi) for entry in entries]
        actions.append(Send(rank, Updates(link.round, 0, spans), [entry.payload for entry in entries]))


def _together(entries: list[Entry], merge: Merge, limit_nbytes: int) -> list[Entry]:
    """All of them for one message. Where even merged they are too much for one, as much as there is room for: then
    somebody may come to stand between two that others have merged."""
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
