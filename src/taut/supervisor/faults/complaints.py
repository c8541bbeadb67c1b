"""Who is complained of, by whom, and whether that is enough to expel it. Pure; cluster.py drives it.

Workers count what they refuse of each other, and tell with every heartbeat. One accuser may lie or be broken itself, so
its word alone moves nobody:

    expelled  <=>  accused, past a limit, by more than half of those who hear it (or of all others), and by two at least

Of two workers neither can expel the other: which of them is broken, nobody can tell. What a worker sends to the
supervisor itself needs no witness.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from taut.core.messages import SUPERVISOR, Complaint

WINDOW_S = 60.0  # a worker that sent a hundred odd messages in a month of training is no danger
MOST_REFUSED = (
    100  # in a window, by one accuser: nothing that is sound is ever refused, but for a race when members change
)
MOST_EXCESS = 20_000  # dropped unread, likewise
MOST_SHOWN = 100  # accusations; then every hundredth is shown, for a liar must not fill the disk


@dataclass(slots=True)
class Account:
    """What one accuser holds against one worker: totals now, and as they were when the window began."""

    since_s: float
    refused: int = 0
    excess: int = 0
    refused_before: int = 0
    excess_before: int = 0
    told: int = 0  # the total when this was last shown

    @property
    def past_limit(self) -> bool:
        return self.refused - self.refused_before > MOST_REFUSED or self.excess - self.excess_before > MOST_EXCESS

    def count(self, refused: int, excess: int, now: float) -> None:
        """The totals are so many by now; less than before is no news."""
        if now - self.since_s > WINDOW_S:
            self.since_s, self.refused_before, self.excess_before = now, self.refused, self.excess
        self.refused, self.excess = max(self.refused, refused), max(self.excess, excess)

    def news(self) -> bool:
        """Whether it is ten times what was shown last."""
        total = self.refused + self.excess
        if total < max(1, 10 * self.told):
            return False
        self.told = total
        return True


@dataclass(slots=True)
class Complaints:
    """All accounts, by accused and accuser.

    >>> complaints = Complaints()
    >>> for accuser in (0, 1):
    ...     _ = complaints.accuse(accuser, Complaint(2, 101, why="not finite"), now=0.0)
    >>> complaints.convicted(2, hears=(0, 1), others=(0, 1)), complaints.convicted(0, (1, 2), (1, 2))
    (True, False)
    """

    accounts: dict[int, dict[int, Account]] = field(default_factory=dict)
    shown: int = 0

    def accuse(self, accuser: int, complaint: Complaint, now: float) -> str | None:
        """An accuser's totals; what to show of it, if it is news."""
        account = self.accounts.setdefault(complaint.rank, {}).setdefault(accuser, Account(now))
        account.count(complaint.refused, complaint.excess, now)
        if not account.news():
            return None
        self.shown += 1
        if self.shown > MOST_SHOWN and self.shown % 100:
            return None
        who = "the supervisor" if accuser == SUPERVISOR else f"worker {accuser}"
        parts = [f"{account.refused} messages refused by {who}"] if account.refused else []
        parts += [f"{account.excess} too many for {who} and dropped"] if account.excess else []
        return f"worker {complaint.rank}: {', '.join(parts)}" + (f": {complaint.why}" if complaint.why else "")

    def refused_here(self, rank: int, refused: int, excess: int, why: str, now: float) -> str | None:
        """The supervisor itself refused so many messages more of this worker; what to show of it."""
        account = self.accounts.get(rank, {}).get(SUPERVISOR)
        before = (account.refused, account.excess) if account is not None else (0, 0)
        return self.accuse(SUPERVISOR, Complaint(rank, before[0] + refused, before[1] + excess, why[:256]), now)

    def accusers(self, rank: int) -> set[int]:
        """Those whose complaints of this worker are past the limit."""
        return {accuser for accuser, account in self.accounts.get(rank, {}).items() if account.past_limit}

    def convicted(self, rank: int, hears: Collection[int], others: Collection[int]) -> bool:
        """Whether it is to be expelled. ``hears``: those whom its messages are for; ``others``: all live ones but it."""
        accusers = self.accusers(rank)
        return SUPERVISOR in accusers or any(_most(accusers, judges) for judges in (hears, others))

    def refused(self, rank: int) -> int:
        """Messages of this worker that were refused by other workers."""
        accounts = self.accounts.get(rank, {})
        return sum(account.refused for accuser, account in accounts.items() if accuser != SUPERVISOR)

    def total(self, rank: int) -> int:
        """Messages of this worker that were refused or dropped, anywhere."""
        return sum(account.refused + account.excess for account in self.accounts.get(rank, {}).values())


def _most(accusers: Collection[int], judges: Collection[int]) -> bool:
    against = sum(1 for judge in judges if judge in accusers)
    return against >= 2 and 2 * against > len(judges)
