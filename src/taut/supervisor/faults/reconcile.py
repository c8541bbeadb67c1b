"""A supervisor that came back, or a connection that broke: what one side knows, the other tells. Pure.

A lease is written down before it is sent (``lease_wal.py``), and so is who is in the run. So a supervisor that comes back
knows all that was dealt, and goes on at once with everybody who has spoken. What it does not know is what the others
have done since: what they hold stays theirs until they speak, or are given up. When a worker says where it stands
(``Returned``),

- what it trained on is done;
- what it took by itself, from what was set aside for it, is its lease, or done;
- what was dealt to it and never came is dealt again.

So nothing is dealt twice that was finished by a worker that is still there.
"""

from __future__ import annotations

from taut.core.messages import OWN_LEASES, Returned
from taut.core.sample_ranges import Span, common, joined, overlap, without
from taut.supervisor.data.lease_wal import Dealt, Entry, Restarted, SetAside, Trained
from taut.supervisor.data.leases import Leases
from taut.supervisor.data.passes import Pass


def replay(entry: Entry, leases: Leases) -> None:
    """What was written down after all else: wherever these places are in our memory, they went on from there."""
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
    """These places are in nobody's hands; which of them were to be dealt again."""
    epoch, lo, hi = span
    for number, (_, old) in list(leases.open.items()):
        if overlap((old.epoch, old.lo, old.hi), span):  # it never came to its worker, and was dealt to another
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
    """Worker ``rank`` says where it stands, as of the pulse that asked it to (``message.issued``). How many samples of
    those that were dealt to it had been lost. ``certain``: nothing that was dealt before can still be on its way.

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
