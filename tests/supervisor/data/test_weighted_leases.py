"""Leases of workers with unequal shares of a global batch: each gets samples for equally many rounds."""

from __future__ import annotations

from scripted import Restarted

from taut.core.messages import Lease, LeaseRequest
from taut.supervisor.run.actions import SendMessage

SHARES = {0: 80, 1: 80, 2: 20}


def test_leases_are_for_equally_many_rounds() -> None:
    run = Restarted(workers=3)
    run.train(*SHARES)
    dealt = dict.fromkeys(SHARES, 0)
    for _ in range(3):
        for rank, share in SHARES.items():
            actions = run.say(rank, LeaseRequest(0, 18_000, share, False, global_batch=180))
            leases = [
                each.message for each in actions if isinstance(each, SendMessage) and isinstance(each.message, Lease)
            ]
            dealt[rank] += sum(lease.hi - lease.lo for lease in leases)
    rounds = {rank: samples / SHARES[rank] for rank, samples in dealt.items()}
    assert max(rounds.values()) < 1.7 * min(rounds.values()), rounds
