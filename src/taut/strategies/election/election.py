"""A majority of the workers agrees on a membership while no supervisor can be reached: the majority of ``sync``.

A *view* is a membership with a stamp; each worker goes through views in the order of stamps, and no round of a view is
made before all its members have told each other that they are in it (``round_agreement.py``). So of two views that have
a member in common, at most one makes rounds from then on. It remains to ensure that any two have one. ``views`` of a
worker are those that may be in force as far as it knows: the last view in which it has heard from all members
(``agreed``), and those that it entered since.

A worker that hears neither the supervisor nor some member starts an *election* for the members that it hears, with a
number higher than all that it knows. A worker votes once in each number, only while it hears no supervisor itself, and
its vote is void when it enters another view first. The members of the new view are the workers whose votes came, and

    2 |votes in v| > |v|        for each view v of each voter

Why this is enough: let v be a view in which some members have heard from all. Each of them is in v, or in a later view,
so an election after v with one of their votes has counted v. And no election can do without one: v itself was made by
more than half of the views before it, and the supervisor counts them too (``supervisor/faults/memberships.py``). Of two
halves of an even number neither goes on.

A supervisor's roster is entered when it comes, unless the supervisor does not know of the election that made the present
view; it learns of it from the heartbeats of the members.

Papers: Lamport 1998, "The part-time parliament"; Oki and Liskov 1988, "Viewstamped replication"; Ongaro and Ousterhout
2014, "In search of an understandable consensus algorithm" (votes once per number; joint majorities).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from taut.core.failure_detector import HEARTBEAT_S
from taut.core.messages import MOST_VIEWS, Presence, View
from taut.errors import MalformedMessage
from taut.strategies.election.peer_detectors import PeerDetectors

CROWD = 64  # members: beyond this, presences come less often, so that no worker gets more in a heartbeat
CLOSE_BEATS = 3  # wait for votes
HEARING_BEATS = 40  # wait for workers that hear the supervisor: it will tell them which are gone
TURN_BEATS = 2  # between two workers that may ask for votes, by rank


def majority(votes: Collection[int], members: Sequence[int]) -> bool:
    """Return whether ``votes`` contain more than half of the members.

    >>> majority({0, 1}, [0, 1, 2]), majority({0, 1}, [0, 1, 2, 3])
    (True, False)
    """
    return 2 * sum(member in votes for member in members) > len(members)


@dataclass(frozen=True, slots=True)
class Answer:
    """Messages to send, and the view to enter now; the caller does both, and confirms with ``entered``."""

    tells: list[tuple[int, Presence]] = field(default_factory=list)
    enter: View | None = None


class Election:
    """One worker's part. Times are in seconds, of any clock.

    >>> three = [Election(rank) for rank in range(3)]
    >>> for each in three:
    ...     each.entered(View(0, 1, [0, 1, 2, 3]))
    ...     each.agreed(1)
    >>> for beat in range(60):  # no worker hears worker 3, nor the supervisor
    ...     for rank in range(3):
    ...         answers = [(rank, three[rank].tick(0.5 * beat, uneasy=True, alone=True, rhythm=[500] * 64))]
    ...         while answers:
    ...             sender, answer = answers.pop()
    ...             if answer.enter is not None:
    ...                 three[sender].entered(answer.enter)
    ...             answers += [(to, three[to].heard(sender, each, 0.5 * beat)) for to, each in answer.tells if to < 3]
    >>> [each.view.members for each in three]
    [[0, 1, 2], [0, 1, 2], [0, 1, 2]]
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.views: list[View] = []
        self.has_agreed = False  # all members of the first view said that they are in it
        self.number = 0  # of the last election that this worker voted in
        self.candidate = -1  # that it voted for; -1: the vote is void
        self._overflowed = False  # too many views to send: no vote until the next is agreed on
        self._highest = 0  # number of a known election
        self._alone = False  # no supervisor is heard
        self._presences: dict[int, Presence] = {}  # the last one of each member
        self._detectors = PeerDetectors()
        self._asked: set[int] = set()  # workers that wait for our presence
        self._due_s = -math.inf
        # while this worker asks for votes
        self._proposed: list[int] = []
        self._votes: dict[int, Presence] = {}
        self._asked_s = 0.0
        self._turn_s = math.inf  # when it may ask for votes again

    @property
    def view(self) -> View:
        return self.views[-1]

    @property
    def voted(self) -> bool:
        """Return whether this worker's vote may still make a view."""
        return self.candidate >= 0 and self.number > self.view.number

    @property
    def interval_s(self) -> float:
        """Return the time between two presences to the same worker."""
        return HEARTBEAT_S * max(1.0, len(self.view.members) / CROWD)

    def entered(self, view: View) -> None:
        """Enter a view: the supervisor's, or one that an ``Answer`` named."""
        if self.views and view.stamp <= self.view.stamp:
            return
        if self.views and (view.number, view.members) == (self.view.number, self.view.members):
            self.views[-1] = view  # the same workers: all that holds for one view holds for the other
        else:
            self.views.append(view)
        if len(self.views) > MOST_VIEWS:
            del self.views[1]
            self._overflowed = True
        self._highest = max(self._highest, view.number)
        self.candidate = -1
        self._withdraw()
        self._detectors.keep(view.members)
        self._presences = {rank: presence for rank, presence in self._presences.items() if rank in view.members}

    def agreed(self, stamp: int) -> None:
        """Note that all members of this view have said that they are in it."""
        for at, view in enumerate(self.views):
            if view.stamp == stamp:
                self.views = self.views[at:]
                self.has_agreed, self._overflowed = True, False
                return

    def seen(self, sender: int, now: float) -> None:
        self._detectors.seen(sender, now)

    def heard(self, sender: int, presence: Presence, now: float) -> Answer:
        """Handle a worker's presence. Raise ``MalformedMessage`` if it makes no sense."""
        _check(sender, presence)
        if sender not in self.view.members:
            return Answer()
        self._detectors.beat(sender, now)
        self._asked.add(sender)
        self._presences[sender] = presence
        self._highest = max(self._highest, presence.number, presence.views[-1].number)
        enter = next((view for view in presence.views if self._voted_for(view)), None)
        if enter is not None:
            return Answer(enter=enter)
        if presence.candidate == sender and self._may_vote(sender, presence):
            self._withdraw()
            self.number, self.candidate = presence.number, sender
            self._turn_s = now + self._pause_s(CLOSE_BEATS)
            return Answer([(sender, self.presence())])
        if self._proposed and sender != self.rank:
            self._count(sender, presence)
            return self._decide(now)
        return Answer()

    def due(self, now: float) -> bool:
        """Return whether ``tick`` has something to do now."""
        return now >= self._due_s and bool(self.views)

    def tick(self, now: float, uneasy: bool, alone: bool, rhythm: Sequence[int]) -> Answer:
        """Let time pass. ``uneasy``: the supervisor is late; ``alone``: it must be taken for gone; ``rhythm``: the
        intervals of its pulses (``Detector.kept``), since presences come as often."""
        if not self.due(now):
            return Answer()
        late_s = now - self._due_s
        self._due_s, self._alone = now + self.interval_s, alone
        if not uneasy:
            self._detectors.keep(())
            self._presences.clear()
            self._withdraw()
            tells, self._asked = self._tells(self._asked & set(self.view.members)), set()
            return Answer(tells)
        others = [rank for rank in self.view.members if rank != self.rank]
        self._detectors.watch(others, now, self.interval_s, late_s, rhythm)
        answer = self._judge(now) if alone else Answer()
        if answer.enter is not None:
            return answer
        return Answer(self._tells(self.view.members))

    def presence(self) -> Presence:
        """Return this worker's presence: its views and its vote."""
        return Presence(self.number, self.candidate, self._proposed, list(self.views), not self._alone)

    def proclaim(self) -> list[tuple[int, Presence]]:
        """Return this worker's presence, to all members."""
        return self._tells(self.view.members)

    # Voting.

    def _voted_for(self, view: View) -> bool:
        """Return whether this view was elected with our vote, and this worker has entered no view since."""
        fits = view.own and view.number == self.number and self.voted
        return fits and self.rank in view.members and set(view.members) <= set(self.view.members)

    def _may_vote(self, candidate: int, presence: Presence) -> bool:
        if not self._alone or self._overflowed or presence.number <= self.number:
            return False
        wanted = set(presence.proposed)
        if not {self.rank, candidate} <= wanted or not wanted <= set(self.view.members):
            return False
        return presence.views[-1].number >= self.view.number  # else it does not know our view; our presence tells it

    # Asking for votes.

    def _judge(self, now: float) -> Answer:
        """Ask for votes if a member is lost and it is this worker's turn; count the votes that came."""
        if self._proposed:
            answer = self._decide(now)
            if answer.enter is not None:
                return answer
        lost = self._detectors.lost(now)
        if not lost or not self.has_agreed or self._overflowed:
            self._turn_s = math.inf
            return Answer()
        if self._turn_s == math.inf:
            self._turn_s = now + self._pause_s(0)
        if now < self._turn_s:
            return Answer()
        wanted = self._reachable(lost)
        self._turn_s = now + self._pause_s(2 * CLOSE_BEATS)
        if not all(majority(wanted, view.members) for view in self.views):
            return Answer()  # no majority is possible
        self.number = self._highest = self._highest + 1
        self.candidate, self._proposed, self._asked_s = self.rank, sorted(wanted), now
        self._votes = {self.rank: self.presence()}
        return self._decide(now)

    def _reachable(self, lost: Collection[int]) -> set[int]:
        """Return the members that are heard, and are in the view of each of them."""
        wanted = {rank for rank in self.view.members if rank not in lost}
        for rank in sorted(wanted & self._presences.keys()):
            top = self._presences[rank].views[-1]
            if top.stamp > self.view.stamp and rank in wanted:
                wanted &= set(top.members)
        return wanted | {self.rank}

    def _count(self, sender: int, presence: Presence) -> None:
        if (presence.number, presence.candidate) == (self.number, self.rank) and sender in self._proposed:
            self._votes[sender] = presence
        else:
            self._votes.pop(sender, None)  # it voted for another candidate, or entered another view

    def _decide(self, now: float) -> Answer:
        """Return the new view, once all votes are here, or no more are awaited."""
        missing = [rank for rank in self._proposed if rank not in self._votes]
        if missing:
            hearing = any(rank in self._presences and self._presences[rank].hears for rank in missing)
            beats = HEARING_BEATS if hearing else CLOSE_BEATS
            if now - self._asked_s < beats * self.interval_s:
                return Answer()
        views = [view for presence in self._votes.values() for view in presence.views]
        if not self._alone or not all(majority(self._votes, view.members) for view in views):
            return Answer()
        version = max(view.version for view in views)
        return Answer(enter=View(self.number, version, sorted(self._votes), own=True))

    def _withdraw(self) -> None:
        self._proposed, self._votes, self._turn_s = [], {}, math.inf

    def _pause_s(self, beats: int) -> float:
        """Return the time of so many beats, plus a turn for each heard member of a lower rank: two seldom ask at once."""
        before = sum(rank < self.rank and rank in self._presences for rank in self.view.members)
        return (beats + TURN_BEATS * before) * self.interval_s

    def _tells(self, to: Iterable[int]) -> list[tuple[int, Presence]]:
        presence = self.presence()
        return [(rank, presence) for rank in sorted(to) if rank != self.rank]


def _check(sender: int, presence: Presence) -> None:
    stamps = [view.stamp for view in presence.views]
    if stamps != sorted(set(stamps)) or any(len(set(view.members)) < len(view.members) for view in presence.views):
        raise MalformedMessage("views that are in no order, or name a member twice")
    if presence.proposed and presence.candidate != sender:
        raise MalformedMessage(f"worker {sender} proposes members in the name of worker {presence.candidate}")
