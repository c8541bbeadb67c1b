"""Complaints of workers about each other, and whether they are enough to expel one. Pure; cluster.py drives it.

Workers count the messages of each other that they refuse, and report the counts with every heartbeat. One accuser may lie
or be broken itself, so it is not enough:

    expelled  <=>  accused, past a limit, by more than half of its receivers (or of all others), and by at least two

Of two workers neither can expel the other: it is unknown which of them is broken. For messages to the supervisor itself
no accuser is needed.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from taut.core.messages import SUPERVISOR, Complaint

WINDOW_S = 60.0  # a hundred odd messages in a month of training are no danger
MOST_REFUSED = 100  # in a window, by one accuser: sound messages are refused only in a race when members change
MOST_EXCESS = 20_000  # dropped unread, in a window, by one accuser
MOST_SHOWN = 100  # accusations; then every hundredth, for a liar must not fill the disk


class ComplaintCount(Struct):
    """One accuser's counts against one worker: totals now, and when the window began."""

    since_s: float
    refused: int = 0
    excess: int = 0
    refused_before: int = 0
    excess_before: int = 0
    told: int = 0  # the total that was last shown

    @property
    def past_limit(self) -> bool:
        return self.refused - self.refused_before > MOST_REFUSED or self.excess - self.excess_before > MOST_EXCESS

    def count(self, refused: int, excess: int, now: float) -> None:
        """Note the totals; smaller ones than before are ignored."""
        if now - self.since_s > WINDOW_S:
            self.since_s, self.refused_before, self.excess_before = now, self.refused, self.excess
        self.refused, self.excess = max(self.refused, refused), max(self.excess, excess)

    def news(self) -> bool:
        """Return whether the total is ten times the last one shown."""
        total = self.refused + self.excess
        if total < max(1, 10 * self.told):
            return False
        self.told = total
        return True


class Complaints(Struct):
    """All counts, by accused and accuser.

    >>> complaints = Complaints()
    >>> for accuser in (0, 1):
    ...     _ = complaints.accuse(accuser, Complaint(2, 101, why="not finite"), now=0.0)
    >>> complaints.convicted(2, hears=(0, 1), others=(0, 1)), complaints.convicted(0, (1, 2), (1, 2))
    (True, False)
    """

    accounts: dict[int, dict[int, ComplaintCount]] = {}
    shown: int = 0

    def accuse(self, accuser: int, complaint: Complaint, now: float) -> str | None:
        """Note an accuser's totals. Return a text for the log if it is news."""
        account = self.accounts.setdefault(complaint.rank, {}).setdefault(accuser, ComplaintCount(now))
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
        """Note that the supervisor itself refused so many more messages of a worker. Return a text for the log if new."""
        account = self.accounts.get(rank, {}).get(SUPERVISOR)
        before = (account.refused, account.excess) if account is not None else (0, 0)
        return self.accuse(SUPERVISOR, Complaint(rank, before[0] + refused, before[1] + excess, why[:256]), now)

    def accusers(self, rank: int) -> set[int]:
        """Return the accusers whose complaints of this worker are past the limit."""
        return {accuser for accuser, account in self.accounts.get(rank, {}).items() if account.past_limit}

    def convicted(self, rank: int, hears: Collection[int], others: Collection[int]) -> bool:
        """Return whether the worker is to be expelled. ``hears``: receivers of its messages; ``others``: all others."""
        accusers = self.accusers(rank)
        counts = [(sum(judge in accusers for judge in judges), len(judges)) for judges in (hears, others)]
        return SUPERVISOR in accusers or any(against >= 2 and 2 * against > judges for against, judges in counts)

    def refused(self, rank: int) -> int:
        """Return the number of this worker's messages that other workers refused."""
        accounts = self.accounts.get(rank, {})
        return sum(account.refused for accuser, account in accounts.items() if accuser != SUPERVISOR)

    def total(self, rank: int) -> int:
        """Return the number of this worker's messages that were refused or dropped, anywhere."""
        return sum(account.refused + account.excess for account in self.accounts.get(rank, {}).values())
