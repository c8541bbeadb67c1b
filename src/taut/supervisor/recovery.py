"""A supervisor that came back: what its store had not got yet, the workers tell. Pure; cluster.py drives it.

The store is a second old at most when a supervisor is killed. So every worker that was in the run says where it stands:
which leases it holds, and which it has trained on of late. Once all have spoken, or were given up,

- a lease that was trained on is done, whether or not the store knew that it had been dealt;
- a lease that its worker holds stays open;
- all else that was dealt, of which nobody knows, is dealt again.

So nothing is dealt twice that was finished by a worker that is still there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from taut.core.messages import Lease, Returned
from taut.supervisor.leases import Leases, Pass
from taut.supervisor.membership import Membership


def reconcile(rank: int, message: Returned, leases: Leases) -> int:
    """Something between the supervisor and worker ``rank`` was lost. What it trained on is done; what was dealt to it
    before the pulse that told it of the loss, and it does not have, is dealt again. How many samples that are."""
    leases.done(rank, [lease.lease for lease in message.done])
    holds = {lease.lease for lease in message.holds}
    lost = [
        lease
        for number, (holder, lease) in leases.open.items()
        if holder == rank and number < message.issued and number not in holds
    ]
    for lease in lost:
        del leases.open[lease.lease]
        leases.returned.append((lease.epoch, lease.lo, lease.hi))
    leases.returned.sort()
    return sum(lease.hi - lease.lo for lease in lost)


@dataclass(slots=True)
class Recovery:
    """``awaited``: ranks that have not spoken yet. ``heard``: places that workers spoke of and the store did not know, by
    pass; ``dealt``: how far each pass had been dealt when the store last knew; ``issued``: how many leases."""

    awaited: set[int] = field(default_factory=set)
    heard: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    dealt: dict[int, int] = field(default_factory=dict)
    issued: int = 0

    @classmethod
    def begin(cls, members: Membership, leases: Leases) -> Recovery:
        dealt = {epoch: each.dealt for epoch, each in leases.passes.items()}
        return cls({worker.rank for worker in members.live()}, {}, dealt, leases.issued)

    @property
    def over(self) -> bool:
        return not self.awaited

    def spoke(self, rank: int, message: Returned, leases: Leases) -> None:
        """Worker ``rank`` says where it stands."""
        if rank not in self.awaited:
            return
        self.awaited.discard(rank)
        holds = {lease.lease: lease for lease in message.holds}
        done = {lease.lease: lease for lease in message.done}
        for lease in (*holds.values(), *done.values()):
            self._learn(rank, lease, message.length, leases)
        leases.done(rank, [number for number in done if number in leases.open])
        lost = [lease for holder, lease in leases.open.values() if holder == rank and lease.lease not in holds]
        for lease in lost:  # dealt to it, and lost on the way
            del leases.open[lease.lease]
            leases.returned.append((lease.epoch, lease.lo, lease.hi))

    def gone(self, rank: int) -> None:
        self.awaited.discard(rank)

    def conclude(self, leases: Leases) -> int:
        """All have spoken: what was dealt and nobody knows of is dealt again; how many samples that are."""
        lost = 0
        for epoch, spans in self.heard.items():
            reached = self.dealt.get(epoch, 0)
            for lo, hi in sorted(spans):
                if lo > reached:
                    leases.returned.append((epoch, reached, lo))
                    lost += lo - reached
                reached = max(reached, hi)
            leases.passes[epoch].dealt = max(leases.passes[epoch].dealt, reached)
        leases.returned.sort()
        return lost

    def _learn(self, rank: int, lease: Lease, length: int, leases: Leases) -> None:
        """A lease that the store did not know of becomes an open one."""
        if lease.lease < self.issued or not 0 <= lease.lo < lease.hi <= length:
            return  # it knew of it: open still, or done; or it cannot be
        if (lease.lo, lease.hi) in self.heard.get(lease.epoch, ()):
            return  # as it heard before it died again
        if leases.passes.setdefault(lease.epoch, Pass(length)).length != length:
            return
        # What the store has as another's, older lease of these places was taken back from it, and dealt again.
        for older in [one for _, one in leases.open.values() if one.lease < lease.lease and _overlap(one, lease)]:
            del leases.open[older.lease]
            leases.returned.append((older.epoch, older.lo, older.hi))
        leases.claim(lease.epoch, lease.lo, lease.hi)
        leases.open[lease.lease] = (rank, lease)
        leases.issued = max(leases.issued, lease.lease + 1)
        self.heard.setdefault(lease.epoch, []).append((lease.lo, lease.hi))


def _overlap(one: Lease, other: Lease) -> bool:
    return one.epoch == other.epoch and one.lo < other.hi and other.lo < one.hi
