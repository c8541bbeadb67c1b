"""Claims that workers elected a membership, checked against the heartbeats of the workers that the claim names. Pure.

A worker that voted is not calm (``Heartbeat.calm``) until it is in a later membership, and a member of an elected one
says so in every heartbeat. So each heard worker that a claim names is either *for* it (says the same, or tells of a later
election among them) or, some beats later, *against* it: calm, and in no such membership. No round is made in a membership
before all are in it, so one honest worker against it proves that none was made. A claim is believed if

    2 |for| > |named|        at once; else, when all heard workers have spoken,
    |for| > |against|   and   2 (|for| + 1) > |named| + 1        with the supervisor as one party, as in
    ``memberships.py``

and only if such votes are possible: the named workers, with the members of a live membership v that contains them and
that are not against it, are more than half of v. (An election after an election is of most of the first, which is of
most of v.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Literal

from msgspec import Struct

from taut.core.failure_detector import HEARTBEAT_S
from taut.core.messages import View

SETTLE_S = 4 * HEARTBEAT_S  # a heartbeat that comes so long after a claim was also sent after it
LATE_S = 4 * SETTLE_S  # a worker that is not calm then, and in no election, voted in vain
Fate = Literal["live", "gone", "ended"]  # gone: its state is unknown; ended: it was calm at its end


class LastHeartbeat(Struct):
    """A worker's last heartbeat; ``since_s``: since when it reports elections that the supervisor has not followed."""

    elected: View | None
    calm: bool
    beat_s: float
    since_s: float


Finding = Literal["true", "open", "void", "untrue"]
FINDINGS: Sequence[Finding] = ("true", "open", "void", "untrue")


class ClaimVerdict(Struct, frozen=True):
    """``true``: the election took place; ``untrue``: the named workers do not know of it; ``void``: some do, but no
    membership came of it, and none can; ``open``: it may be true, but too few are heard to know."""

    view: View
    claimers: list[int]
    finding: Finding


class ElectionClaims(Struct):
    """The claims so far. ``told``, in all methods: the live memberships; ``above``: the last election that was followed.

    >>> claims, told = ElectionClaims(), [frozenset({0, 1, 2, 3})]
    >>> made_up = View(1, 5, [0, 1, 2], own=True)
    >>> for beat in range(6):
    ...     claims.beat(0, made_up, True, 0.5 * beat, above=0)
    ...     for rank in (1, 2, 3):
    ...         claims.beat(rank, None, True, 0.5 * beat, above=0)
    >>> claims.judge(2.5, 0, told, lambda rank: "live").finding
    'untrue'
    >>> claims.beat(1, made_up, False, 2.6, above=0)
    >>> claims.judge(2.6, 0, told, lambda rank: "live").finding
    'true'
    """

    heartbeats: dict[int, LastHeartbeat] = {}
    claiming: set[int] = set()  # workers that report an election: mostly none
    _cleared_s: float = math.inf  # the claims since then were answered by a roster (``unclear``)

    def beat(self, rank: int, elected: View | None, calm: bool, now: float, above: int) -> None:
        """Note a heartbeat."""
        before = self.heartbeats.get(rank)
        claims = elected is not None and elected.number > above
        since_s = math.inf if not claims else min(now, before.since_s if before is not None else now)
        self.heartbeats[rank] = LastHeartbeat(elected if claims else None, calm, now, since_s)
        (self.claiming.add if claims else self.claiming.discard)(rank)

    def judge(
        self, now: float, above: int, told: Sequence[Collection[int]], fate: Callable[[int], Fate]
    ) -> ClaimVerdict | None:
        """Return the verdict on the claims, the lowest number first: it cannot be seen after a later one was refused."""
        claimed, opened = self.claimed(above, fate), None
        for number in sorted({view.number for view in claimed}):
            found = [self._weigh(view, now, told, fate) for view in claimed if view.number == number]
            clear = sorted((each for each in found if each is not None), key=lambda each: FINDINGS.index(each.finding))
            if clear and clear[0].finding == "true":
                return clear[0]
            if len(clear) < len(found):
                break
            opened = opened or next((each for each in clear if each.finding == "open"), None)
            if opened is None:
                return clear[0]
        return opened

    def unclear(self, now: float, above: int, fate: Callable[[int], Fate]) -> bool:
        """Return, once for each claim, whether a vote may still be open: a roster under a new version makes it void."""
        since_s = min((self.heartbeats[rank].since_s for rank in self.claiming), default=math.inf)
        if since_s == self._cleared_s or now < since_s + SETTLE_S or not self.claimed(above, fate):
            return False
        self._cleared_s = since_s
        return any(
            not last.calm and last.elected is None for rank, last in self.heartbeats.items() if fate(rank) == "live"
        )

    def claimed(self, above: int, fate: Callable[[int], Fate]) -> list[View]:
        """Return the elections that heard workers report."""
        views: list[View] = []
        for rank in sorted(self.claiming):
            view = self.heartbeats[rank].elected
            if view is not None and view.number > above and fate(rank) == "live" and view not in views:
                views.append(view)
        return views

    def _weigh(
        self, view: View, now: float, told: Sequence[Collection[int]], fate: Callable[[int], Fate]
    ) -> ClaimVerdict | None:
        since_s = min(self.heartbeats[rank].since_s for rank in self.claiming if self.heartbeats[rank].elected == view)

        def stance(rank: int) -> int | None:
            """Return 1 for, -1 against, 0 if it cannot be asked, None if it has yet to speak."""
            if fate(rank) != "live":
                return -1 if fate(rank) == "ended" else 0
            last = self.heartbeats.get(rank)
            mine = last.elected if last is not None else None
            if mine is not None and _bears_out(mine, view):
                return 1
            if last is None or last.beat_s < since_s + SETTLE_S:
                return None
            # in another election, or in none
            other = mine is not None and mine.number >= view.number
            return -1 if other or last.calm or now > since_s + LATE_S else None

        named = {rank: stance(rank) for rank in view.members}
        claimers = [rank for rank in named if named[rank] == 1]
        bases = [each for each in told if set(view.members) <= set(each)]
        if any(2 * len(view.members) > len(base) for base in bases):
            likely: bool | None = True
        else:
            likely = _may_be(view, [{rank: stance(rank) for rank in base} for base in bases])
        if likely and 2 * len(claimers) > len(named):
            return ClaimVerdict(view, claimers, "true")
        if likely is None or None in named.values() or now < since_s + SETTLE_S:
            return None
        against = sum(each == -1 for each in named.values())
        if not likely or len(claimers) <= against:
            return ClaimVerdict(view, claimers, "untrue")
        parties = sum(fate(rank) != "ended" for rank in named)
        enough = 2 * (len(claimers) + 1) > parties + 1
        return ClaimVerdict(view, claimers, "true" if enough else "void" if against else "open")


def _bears_out(mine: View, view: View) -> bool:
    """Return whether members of ``mine`` can have been in ``view``: a later election is among members of earlier ones."""
    if mine.number == view.number:
        return mine == view
    return mine.number > view.number and set(mine.members) <= set(view.members)


def _may_be(view: View, bases: Sequence[dict[int, int | None]]) -> bool | None:
    """Return whether the named workers and those not against them are most of a membership; None: not known yet."""
    waiting = False
    for stances in bases:
        silent = [rank for rank, each in stances.items() if rank in view.members or each != -1]
        if 2 * len(silent) > len(stances):
            if None not in stances.values():
                return True
            waiting = True
    return None if waiting else False
