"""Reliable broadcast: every update reaches every worker exactly once, across lost, repeated and reordered messages,
late joins and deaths. All complete strategies are built on it.

Each worker numbers its updates 1, 2, 3, ... and keeps them in a log until all neighbours have them. A receiver takes
them in order, per origin, so its knowledge is a version vector. ``Report`` carries it back: acknowledgement, request for
the missing updates and news of deaths in one. When an origin has died, each worker that holds more of its stream than a
neighbour passes the rest on (``orphaned_updates.py``). This always fits, since ``Log.compact`` keeps every position up to
which some worker may have received.

Joining: a newcomer is ``pending`` until it has a state. Until then every neighbour keeps its whole log for it. The
newcomer asks its donor for the state only after all neighbours have reported to it (so they do keep their logs), and then
tells each the position that the state contains. Before the donor copies its state it includes all that it has received,
since others may have pruned what it acknowledged. It hands over its logs too (``tail``), since they may hold updates that
no other worker has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import msgspec

from taut.core import events as ev
from taut.core.messages import Mark, Report, Span, Updates
from taut.strategies.broadcast.arrivals import Check, compare_chains, extend_chains, take_report, take_updates
from taut.strategies.broadcast.log import Entry, Log, Merge
from taut.strategies.broadcast.orphaned_updates import MAX_SPANS, follow, merged_spans, pass_on
from taut.strategies.broadcast.state import BroadcastState, prune
from taut.strategies.delivery.retransmission import MOST_PATIENCE, PeerLink
from taut.strategies.info import ANY_CODEC, StrategyInfo

MARKS_S = 0.5  # between two reports with hash chains, to one neighbour


@dataclass(frozen=True)
class Broadcast:
    """Hyper-parameters. ``merge`` adds payloads; ``window_nbytes`` bounds what is under way to one neighbour
    (less over a slow path: ``path_rate.py``);
    ``budget_nbytes`` is how large the log may grow before queued updates are merged; ``report_s`` spaces reports.
    ``check`` raises ``MalformedMessage`` for a payload that must not be kept (its result goes into ``Include``), and
    ``keep_nbytes`` bounds what is kept of another origin's updates: the rest is sent again later.
    ``compares``: workers notice an origin that sends different updates to different workers (``hash_chains.py``)."""

    info: ClassVar[StrategyInfo] = StrategyInfo()
    paper: ClassVar[str] = ""
    codecs: ClassVar[tuple[str, ...]] = ("tether", ANY_CODEC)
    topologies: ClassVar[tuple[str, ...]] = ("complete",)
    complete: ClassVar[bool] = True  # every update reaches every worker
    bounded: ClassVar[bool] = False  # a worker may have to wait: see `horizon`
    returns: ClassVar[Literal["sum", "mix"]] = "sum"  # see `Method.returns`

    merge: Merge
    window_nbytes: int = 1 << 20
    budget_nbytes: int = 16 << 20
    frame_nbytes: int = 1 << 20
    payload_nbytes: int = 32 << 20
    report_s: float = 0.05
    keep_nbytes: int = 1 << 30
    check: Check | None = None
    compares: bool = False  # neighbours tell each other hash chains of what each origin sent

    def start(self, rank: int, synced: bool) -> BroadcastState:
        return BroadcastState(rank=rank, synced=synced)

    def horizon(self, state: BroadcastState) -> float:
        """Return the largest clock at which a worker may go on."""
        return math.inf

    def may_go(self, state: BroadcastState) -> bool:
        """Return whether this worker may take its next step."""
        return state.clock <= self.horizon(state)

    def on(  # noqa: PLR0912  # one case per event
        self, state: BroadcastState, event: ev.Event, now: float
    ) -> list[ev.Action]:
        """Change ``state`` in place for ``event``, and return the actions to carry out."""
        actions: list[ev.Action] = []
        match event:
            case ev.Published(payload):
                self._publish(state, payload)
            case ev.Arrived(sender, Updates() as message, payloads):
                actions += take_updates(state, sender, message, payloads, self.check, self.keep_nbytes)
                if self.compares:
                    extend_chains(state, actions)
            case ev.Arrived(sender, Report() as message, _):
                take_report(state, sender, message, now)
                actions += compare_chains(state, sender, message)
                prune(state)
                follow(state.log_of(sender), message.merged, self.merge, self.payload_nbytes)
            case ev.Taken(positions):
                state.taken.update(positions)
                for link in state.links.values():
                    link.report_due = True
            case ev.PeerJoined(rank):
                state.links.setdefault(rank, PeerLink())
                state.log_of(rank)
            case ev.PeerGone() | ev.PeerAhead():
                _on_gone(state, event)
                prune(state)
            case ev.Synced(have, tail):
                _on_synced(state, have, tail)
            case ev.Ended():
                state.final = state.log_of(state.rank).head
                _owe_reports(state)
            case ev.Blocked(to, Updates() as message):
                _on_blocked(state, to, message)
            case ev.Tick():
                for link in state.links.values():
                    link.blocked = False
        self._pump(state, now, actions)
        return actions

    def _publish(self, state: BroadcastState, payload: bytes | None) -> None:
        assert state.final < 0, "published after the end"
        state.step += 1
        if payload is None:
            return
        log = state.log_of(state.rank)
        log.append(log.head + 1, log.head + 1, payload)
        state.step_of[log.head] = state.step
        if not state.links:
            prune(state)
        elif log.nbytes > max(self.budget_nbytes, 2 * log.compacted_nbytes):  # not for every small update
            log.compact(lambda at: _boundary_needed(state, at), self.merge, self.payload_nbytes)

    def _pump(self, state: BroadcastState, now: float, actions: list[ev.Action]) -> None:
        own = state.log_of(state.rank)
        for rank, link in state.links.items():
            # This runs for every neighbour at every event, and mostly there is nothing to do: the checks come first.
            if state.synced and not link.pending:
                if link.oldest_s is not None and now - link.oldest_s > link.rto_s and link.overdue(now):
                    link.send_again()
                    link.patience = min(MOST_PATIENCE, 2 * link.patience)
                if link.sent < own.head:
                    self._send_new(state, own, rank, link, now, actions)
                if state.gone:
                    pass_on(state, rank, link, now, self.merge, self.payload_nbytes, actions)
            since_s = now - link.reported_s
            if link.gap or since_s >= (self.report_s if link.report_due else link.rto_s):
                actions.append(ev.Send(rank, _report(state, rank, link, now)))
                link.report_due = link.gap = False
                link.reported_s = now
        if state.drained() and not state.told_drained:
            state.told_drained = True
            actions.append(ev.Drained(dict(state.have())))

    def _send_new(
        self, state: BroadcastState, own: Log, rank: int, link: PeerLink, now: float, actions: list[ev.Action]
    ) -> None:
        while not link.blocked and link.sent < own.head:
            batch: list[Entry] = []
            nbytes = 0
            room = min(self.window_nbytes, link.rate.window_nbytes) - link.flight_nbytes
            most = min(room, self.frame_nbytes, link.rate.part_nbytes)
            for entry in own.after(link.sent):
                nbytes += len(entry.payload)
                if batch and (nbytes > most or len(batch) == MAX_SPANS):
                    break
                if nbytes > room and link.flight:
                    break  # a single update larger than the window still goes, alone
                batch.append(entry)
            if not batch:
                return
            link.advance(batch[-1].hi, sum(len(entry.payload) for entry in batch), now)
            spans = [Span(state.rank, entry.lo, entry.hi) for entry in batch]
            message = Updates(link.round, state.taken.get(rank, 0), spans)
            actions.append(ev.Send(rank, message, [entry.payload for entry in batch]))


def _on_gone(state: BroadcastState, event: ev.PeerGone | ev.PeerAhead) -> None:
    rank = event.rank
    if rank in state.gone or rank == state.rank:
        return
    state.links.pop(rank, None)
    if isinstance(event, ev.PeerAhead):
        return  # no worker has any of its updates
    state.gone.add(rank)
    state.log_of(rank)
    state.told_drained = False
    _owe_reports(state)


def _on_synced(state: BroadcastState, have: dict[int, int], tail: list[ev.Include]) -> None:
    assert not state.synced
    floors = {origin: position for origin, position in have.items() if origin != state.rank}
    for item in reversed(tail):
        floors[item.origin] = item.lo - 1
    for origin, floor in floors.items():
        state.log_of(origin).skip(floor)
    for item in tail:
        state.log_of(item.origin).append(item.lo, item.hi, item.payload)
    for origin, position in have.items():
        if origin != state.rank:
            assert state.log_of(origin).head == position, "the tail does not end where the state does"
            state.taken[origin] = position
            state.chain_of(origin).restart(position)
    state.synced = True
    _owe_reports(state)


def _on_blocked(state: BroadcastState, to: int, message: Updates) -> None:
    link = state.links.get(to)
    if link is None or not message.spans:
        return
    link.blocked = True
    if message.spans[0].origin == state.rank:
        link.rewind(max(link.received, min(link.sent, message.spans[0].lo - 1)))
    else:
        link.relayed.pop(message.spans[0].origin, None)


def _owe_reports(state: BroadcastState) -> None:
    for link in state.links.values():
        link.report_due = True
        link.reported_s = float("-inf")


def _report(state: BroadcastState, rank: int, link: PeerLink, now: float) -> Report:
    position = state.taken.get(rank, 0) if state.synced else -1
    link.told_clock = state.clock
    report = Report(link.in_round, position, link.gap, state.have(), sorted(state.gone), state.final, state.clock)
    merged = merged_spans(state.log_of(state.rank))
    marks: list[Mark] = []
    if now - link.marked_s >= MARKS_S or state.final >= 0:
        link.marked_s = now
        others = [(origin, chain) for origin, chain in state.chains.items() if origin != rank]
        marks = [Mark(origin, *mark) for origin, chain in others for mark in chain.marks()]
    return msgspec.structs.replace(report, merged=merged, marks=marks) if merged or marks else report


def _boundary_needed(state: BroadcastState, at: int) -> bool:
    return any(link.pending or link.taken <= at <= link.reach for link in state.links.values())
