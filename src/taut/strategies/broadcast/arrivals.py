"""Handle a neighbour's messages: take its updates in order per origin, and its reports as far as they can be true."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taut.core.events import Action, Checked, Disputed, Include, PayloadRefused
from taut.core.messages import Report, Span, Updates
from taut.errors import MalformedMessage
from taut.strategies.broadcast.state import BroadcastState
from taut.strategies.delivery.retransmission import PeerLink

FAR = 1 << 24  # updates: no origin is ever so far ahead of what has arrived
MOST_CLOCK = 1 << 48
MOST_UNKNOWN = 1024  # workers that a neighbour may speak of before we have heard of them


Check = Callable[[bytes], Checked | None]


def take_updates(
    state: BroadcastState,
    sender: int,
    message: Updates,
    payloads: list[bytes],
    check: Check | None = None,
    keep_nbytes: int = 1 << 62,
) -> list[Action]:
    """Return the updates that follow directly on those that are here, to be included; ignore all others. Payloads are
    checked before they are kept: a refused one is kept as an empty one, which changes nothing."""
    link = state.links.get(sender)
    if link is None or not state.synced:
        return []  # from a stranger, or before this worker has a state: it will be sent again
    fresh, gap = _fresh(state, sender, message, payloads)
    actions: list[Action] = []
    if message.spans and message.spans[0].origin == sender:
        link.in_round = message.round
        _measure_staleness(state, message.echo)
    link.gap = link.gap or gap
    for span, payload in fresh:
        log = state.log_of(span.origin)
        if log.entries and log.nbytes + len(payload) > keep_nbytes:
            break  # too much is kept already that others lack: it will be sent again
        item = _checked(span, payload, sender, check, actions)
        log.append(item.lo, item.hi, item.payload)
        actions.append(item)
    link.report_due = True
    return actions


def _checked(span: Span, payload: bytes, sender: int, check: Check | None, actions: list[Action]) -> Include:
    """Return the update to be included, empty if its payload is refused. An empty payload that was passed on was
    refused by an earlier receiver; its sender is not to blame."""
    checked = None
    if check is not None and (payload or span.origin == sender):
        try:
            checked = check(payload)
        except MalformedMessage as error:
            actions.append(PayloadRefused(sender, str(error)))
            payload = b""
    return Include(span.origin, span.lo, span.hi, payload, checked)


def _fresh(
    state: BroadcastState, sender: int, message: Updates, payloads: list[bytes]
) -> tuple[list[tuple[Span, bytes]], bool]:
    """Return the updates in a message that follow directly on those that are here, and whether some before them are
    missing. Raise ``MalformedMessage`` for impossible numbers."""
    fresh: list[tuple[Span, bytes]] = []
    heads: dict[int, int] = {}
    gap = False
    for span, payload in zip(message.spans, payloads, strict=True):
        if span.origin == state.rank or (span.origin != sender and span.origin not in state.gone):
            continue  # ours, or an orphan's of whose death we do not know yet: it will be sent again
        head = heads.setdefault(span.origin, state.log_of(span.origin).head)
        if span.hi < span.lo or span.hi > head + FAR:
            raise MalformedMessage(f"updates {span.lo}..{span.hi} of worker {span.origin}, of which {head} have come")
        if span.hi <= head:
            continue  # a repetition
        if span.lo != head + 1:
            gap = gap or span.origin == sender
            continue
        fresh.append((span, payload))
        heads[span.origin] = span.hi
    return fresh, gap


def _measure_staleness(state: BroadcastState, echo: int) -> None:
    """Add half a round trip, in own iterations, to the smoothed staleness. A round trip goes from making an update to
    receiving one that was made with it."""
    made = state.step_of.get(echo)
    if made is None:
        return
    own = state.log_of(state.rank)
    following = state.step_of.get(echo + 1)
    outstanding = 0 if own.head == echo or following is None else state.step - following + 1
    measured = (outstanding + 1) / 2
    state.measured.append(measured)
    state.staleness += 0.05 * (measured - state.staleness)


def take_report(state: BroadcastState, sender: int, message: Report, now: float) -> None:
    """Note which updates the neighbour has received and included. Raise ``MalformedMessage`` for impossible claims."""
    link = state.links.get(sender)
    if link is None:
        return
    own = state.log_of(state.rank)
    received = min(message.have.get(state.rank, 0), own.head)
    _check_claims(state, sender, message, received)
    link.heard = True
    link.final = max(link.final, message.final)
    link.clock = max(link.clock, message.clock)
    _learn(state, link, message)
    if message.position < 0:
        return
    if link.pending:
        link.resume(received)
        return
    if received > link.received:
        nbytes = sum(len(entry.payload) for entry in own.after(link.received) if entry.hi <= received)
        link.confirmed(received, nbytes, message.round == link.round, now)
    link.sent = max(link.sent, link.received)
    link.take(min(message.position, link.received))
    if message.gap and message.round == link.round:
        link.send_again()


def extend_chains(state: BroadcastState, taken: Sequence[Action]) -> None:
    """Add the updates that were taken to the hash chains of their origins."""
    for item in taken:
        if isinstance(item, Include):
            state.chain_of(item.origin).add(item.lo, item.hi, item.payload)


def compare_chains(state: BroadcastState, sender: int, message: Report) -> list[Disputed]:
    """Return each origin, once, of which the neighbour holds other updates than we do, by its hash chains."""
    disputed: list[Disputed] = []
    for mark in message.marks:
        chain = state.chains.get(mark.origin)
        if chain is None or mark.origin in (sender, state.rank) or sender not in state.links:
            continue
        known = state.disputed.get(mark.origin, ())
        if sender not in known and chain.contradicts(mark.position, mark.value):
            state.disputed.setdefault(mark.origin, set()).add(sender)
            disputed.append(Disputed(mark.origin, sender))
    return disputed


def _check_claims(state: BroadcastState, sender: int, message: Report, received: int) -> None:
    """Raise ``MalformedMessage`` for an impossible claim: our log must hold what the neighbour will ask for."""
    link = state.links[sender]
    if message.final > state.log_of(sender).head + FAR or message.clock > MOST_CLOCK:
        raise MalformedMessage(f"a last update {message.final}, or a clock {message.clock}, that cannot be")
    if message.position < 0 or (not link.pending and received <= link.received):
        return
    if not state.log_of(state.rank).boundary(received) or (not link.pending and received > link.reach):
        raise MalformedMessage(f"update {received} of ours, which was never sent as the end of one")


def _learn(state: BroadcastState, link: PeerLink, message: Report) -> None:
    """Note which updates the neighbour holds, and which workers it says are dead. The number of ranks that we have
    never heard of is bounded: they might be made up, and true ones are reported again."""
    room = len(state.logs) + MOST_UNKNOWN
    for rank in message.sealed:
        if rank in state.logs or len(link.sealed) < room:
            link.sealed.add(rank)
    for origin, count in message.have.items():
        if origin in state.logs or len(link.seen) < room:
            link.seen[origin] = max(link.seen.get(origin, 0), count)
