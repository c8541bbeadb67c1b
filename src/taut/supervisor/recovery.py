"""A supervisor that came back, or a connection that broke: what one side knows, the other tells. Pure.

A lease is written down before it is sent (``ahead.py``), and so is who is in the run. So a supervisor that comes back
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
from taut.supervisor.leases import Leases


def reconcile(rank: int, message: Returned, leases: Leases, certain: bool = True) -> int:
    """Worker ``rank`` says where it stands, as of the pulse that asked it to (``message.issued``). How many samples of
    those that were dealt to it had been lost. ``certain``: nothing that was dealt before can still be on its way.

    >>> leases = Leases()
    >>> first, second = (leases.request(0, 0, 100, batch=10, live_workers=1) for _ in range(2))
    >>> reconcile(0, Returned(0, "ready", 0, [first], [], 100, issued=2), leases), leases.returned
    (20, [(0, 20, 40)])
    """
    for lease in (*message.holds, *message.done):
        if lease.lease >= OWN_LEASES:
            leases.taken(rank, lease, message.length)
    leases.done(rank, [lease.lease for lease in message.done])
    holds = {lease.lease for lease in message.holds}
    lost = [
        lease
        for number, (holder, lease) in leases.open.items()
        if holder == rank and number < message.issued and number not in holds
    ]
    return leases.take_back(lost, certain)
