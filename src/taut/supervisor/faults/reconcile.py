"""Reconciles leases with a worker's report, after the supervisor was restarted or a connection broke. Pure.

Leases (``lease_wal.py``) and the roster are stored before they are sent. So a restarted supervisor knows all leases, and
goes on at once with every worker that has spoken. It does not know what the others have done since: their leases stay
with them until they speak, or are evicted. When a worker reports its state (``Returned``),

- leases that it trained on are done;
- leases that it took by itself from its reserve are its own, or done;
- leases that never reached it are leased again.

So no lease that a living worker finished is leased twice.
"""

from __future__ import annotations

from taut.core.messages import OWN_LEASES, Returned
from taut.core.sample_ranges import Span, common, joined, overlap, without
from taut.supervisor.data.lease_wal import Dealt, Entry, Restarted, SetAside, Trained
from taut.supervisor.data.leases import Leases
from taut.supervisor.data.passes import Pass


def replay(entry: Entry, leases: Leases) -> None:
    """Apply an entry of the log: wherever its indices are in the snapshot, they moved on from there."""
    match entry:
        case Trained(rank, ids):
            leases.done(rank, ids)
        case Restarted(epoch, length):
            leases.restart(epoch, length)
        case SetAside(rank, spans, length):
            for span in spans:
                leases.fit(span[0], length)
                leases.passes.setdefault(span[0], Pass(length))
                _withdraw(span, leases)
                leases.untouched = without(leases.untouched, span)
            leases.reserved[rank] = joined([*leases.reserved.get(rank, []), *spans])
        case Dealt(rank, lease, length):
            leases.fit(lease.epoch, length)
            leases.passes.setdefault(lease.epoch, Pass(length))
            for span in _withdraw((lease.epoch, lease.lo, lease.hi), leases):
                leases.count_again(span)
            leases.hold(rank, lease, length)
            if lease.lease < OWN_LEASES:
                leases.issued = max(leases.issued, lease.lease + 1)


def _withdraw(span: Span, leases: Leases) -> list[Span]:
    """Remove these indices from all leases, reserves and passes, and return those that were to be leased again."""
    epoch, lo, hi = span
    for number, (_, old) in list(leases.open.items()):
        if overlap((old.epoch, old.lo, old.hi), span):  # it never reached its worker, and was leased to another
            del leases.open[number]
            leases.spare(without([(old.epoch, old.lo, old.hi)], span))
    again = common(leases.returned, span)
    leases.returned = without(leases.returned, span)
    for rank, spans in leases.reserved.items():
        leases.reserved[rank] = without(spans, span)
    current = leases.passes[epoch]
    if overlap((epoch, current.dealt, current.end), span):
        if hi >= current.end:
            current.end = max(current.dealt, lo)
        else:
            leases.spare([(epoch, current.dealt, lo)] if current.dealt < lo else [])
            current.dealt = hi
    return again


def reconcile(rank: int, message: Returned, leases: Leases, certain: bool = True) -> int:
    """Apply worker ``rank``'s report, as of the pulse that asked for it (``message.issued``). Return the number of
    leased samples that had been lost. ``certain``: no earlier lease can still be on its way.

    >>> leases = Leases()
    >>> first, second = (leases.request(0, 0, 100, batch=10, live_workers=1) for _ in range(2))
    >>> reconcile(0, Returned(0, "ready", 0, [first], [], issued=2), leases), leases.returned
    (20, [(0, 20, 40)])
    """
    for lease in (*message.holds, *message.done):
        if lease.lease >= OWN_LEASES:
            leases.taken(rank, lease)
    leases.done(rank, [lease.lease for lease in message.done])
    holds = {lease.lease for lease in message.holds}
    lost = [
        lease
        for number, (holder, lease) in leases.open.items()
        if holder == rank and number < message.issued and number not in holds
    ]
    return leases.take_back(lost, certain)
