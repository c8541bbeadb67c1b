"""Most workers agree among themselves on who is in the run, while no supervisor is heard: the majority of ``sync``.

A *view* is a membership with a stamp; each worker goes through views in the order of stamps, and no round of a view is
made before all its members have told each other that they are in it (``round_agreement.py``). So of two views that have
a member in common, one at most makes rounds from then on. What is left to see to is that any two have one. ``views`` of
a worker are those that may be in force as far as it knows: the last one of which it has heard from all members
(``agreed``), and those it entered since.

A worker that has lost sight of the supervisor and of a member asks for the members that it hears: an *election*, with a
number that is higher than all it knows of. A worker votes once in each number, only while it hears no supervisor itself,
and its vote is void when it enters another view first. The members of the new view are those whose votes came, and

    2 |votes in v| > |v|        for each view v of each voter

Why that is enough: let v be a view of which some members have heard from all. Each of them is in v, or beyond, so whoever
elects a view after v with one of their votes has counted v. And nobody can elect without one: v itself was made by more
than half of the views before it, and the supervisor counts them too (``supervisor/faults/memberships.py``). Two halves
of an even number: none of them goes on.

A supervisor's roster is entered when it comes, but if it does not know of the election that made the present view; it
learns of that from the heartbeats of those who are in it.

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

CROWD = 64  # members: beyond that, words come less often, so that nobody has more than so many in a heartbeat
CLOSE_BEATS = 3  # for votes to come
HEARING_BEATS = 40  # for those who say that they hear the supervisor to be told by it who is gone
TURN_BEATS = 2  # between the first and the second who may ask for votes, and so on


def majority(votes: Collection[int], members: Sequence[int]) -> bool:
    """
    >>> majority({0, 1}, [0, 1, 2]), majority({0, 1}, [0, 1, 2, 3])
    (True, False)
    """
    return 2 * sum(member in votes for member in members) > len(members)


@dataclass(frozen=True, slots=True)
class Answer:
    """What to tell whom, and the view that this worker enters now: the shell does, and says so with ``placed``."""

    tells: list[tuple[int, Presence]] = field(default_factory=list)
    enter: View | None = None


class Election:
    """One worker's part. Times are in seconds, of any clock.

    >>> three = [Election(rank) for rank in range(3)]
    >>> for each in three:
    ...     each.placed(View(0, 1, [0, 1, 2, 3]))
    ...     each.agreed(1)
    >>> for beat in range(60):  # nobody hears worker 3, nor the supervisor
    ...     for rank in range(3):
    ...         answers = [(rank, three[rank].tick(0.5 * beat, uneasy=True, alone=True, rhythm=[500] * 64))]
    ...         while answers:
    ...             sender, answer = answers.pop()
    ...             if answer.enter is not None:
    ...                 three[sender].placed(answer.enter)
    ...             answers += [(to, three[to].heard(sender, word, 0.5 * beat)) for to, word in answer.tells if to < 3]
    >>> [each.view.members for each in three]
    [[0, 1, 2], [0, 1, 2], [0, 1, 2]]
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.views: list[View] = []
        self.has_agreed = False  # the first of them was heard of from all its members
        self.number = 0  # of the last election that this worker voted in
        self.candidate = -1  # for whom; -1: the vote is void
        self._overflowed = False  # there were more views than can be told: no vote until the next is agreed on
        self._highest = 0  # number of an election that is known of
        self._alone = False  # no supervisor is heard
        self._words: dict[int, Presence] = {}  # the last of each member
        self._lookout = PeerDetectors()
        self._asked: set[int] = set()  # who waits for a word of ours
        self._due_s = -math.inf
        # while this worker asks for votes
        self._proposed: list[int] = []
        self._votes: dict[int, Presence] = {}
        self._asked_s = 0.0
        self._turn_s = math.inf  # when it may ask again

    @property
    def view(self) -> View:
        """The one that this worker is in."""
        return self.views[-1]

    @property
    def voted(self) -> bool:
        """This worker's vote may still make a view."""
        return self.candidate >= 0 and self.number > self.view.number

    @property
    def interval_s(self) -> float:
        """Between two words to the same worker."""
        return HEARTBEAT_S * max(1.0, len(self.view.members) / CROWD)

    # -------------------------------------------------------------------------------------------- what happens

    def placed(self, view: View) -> None:
        """This worker enters a view: the supervisor's, or one that an ``Answer`` named."""
        if self.views and view.stamp <= self.view.stamp:
            return
        if self.views and (view.number, view.members) == (self.view.number, self.view.members):
            self.views[-1] = view  # the same workers: what holds of the one holds of the other
        else:
            self.views.append(view)
        if len(self.views) > MOST_VIEWS:
            del self.views[1]
            self._overflowed = True
        self._highest = max(self._highest, view.number)
        self.candidate = -1
        self._withdraw()
        self._lookout.keep(view.members)
        self._words = {rank: word for rank, word in self._words.items() if rank in view.members}

    def agreed(self, stamp: int) -> None:
        """All members of this view have said that they are in it."""
        for at, view in enumerate(self.views):
            if view.stamp == stamp:
                self.views = self.views[at:]
                self.has_agreed, self._overflowed = True, False
                return

    def seen(self, sender: int, now: float) -> None:
        """Some message of a worker's came."""
        self._lookout.seen(sender, now)

    def heard(self, sender: int, word: Presence, now: float) -> Answer:
        """A worker's word. ``MalformedMessage`` if it makes no sense."""
        _check(sender, word)
        if sender not in self.view.members:
            return Answer()
        self._lookout.beat(sender, now)
        self._asked.add(sender)
        self._words[sender] = word
        self._highest = max(self._highest, word.number, word.views[-1].number)
        enter = next((view for view in word.views if self._voted_for(view)), None)
        if enter is not None:
            return Answer(enter=enter)
        if word.candidate == sender and self._may_vote(sender, word):
            self._withdraw()
            self.number, self.candidate = word.number, sender
            self._turn_s = now + self._pause_s(CLOSE_BEATS)
            return Answer([(sender, self.word())])
        if self._proposed and sender != self.rank:
            self._count(sender, word)
            return self._decide(now)
        return Answer()

    def tick(self, now: float, uneasy: bool, alone: bool, rhythm: Sequence[int]) -> Answer:
        """Time passes. ``uneasy``: the supervisor is late; ``alone``: it must be taken for gone; ``rhythm``: of its
        pulses (``Detector.kept``), since the words of others come as often."""
        if now < self._due_s or not self.views:
            return Answer()
        late_s = now - self._due_s
        self._due_s, self._alone = now + self.interval_s, alone
        if not uneasy:
            self._lookout.keep(())
            self._words.clear()
            self._withdraw()
            tells, self._asked = self._tells(self._asked & set(self.view.members)), set()
            return Answer(tells)
        others = [rank for rank in self.view.members if rank != self.rank]
        self._lookout.watch(others, now, self.interval_s, late_s, rhythm)
        answer = self._judge(now) if alone else Answer()
        if answer.enter is not None:
            return answer
        return Answer(self._tells(self.view.members))

    def word(self) -> Presence:
        """Where this worker stands."""
        return Presence(self.number, self.candidate, self._proposed, list(self.views), not self._alone)

    def proclaim(self) -> list[tuple[int, Presence]]:
        """The same, to all, at once."""
        return self._tells(self.view.members)

    # ------------------------------------------------------------------------------------------------- voting

    def _voted_for(self, view: View) -> bool:
        """It was elected with our vote, which is good still: we are in no other view since we gave it."""
        fits = view.own and view.number == self.number and self.voted
        return fits and self.rank in view.members and set(view.members) <= set(self.view.members)

    def _may_vote(self, candidate: int, word: Presence) -> bool:
        if not self._alone or self._overflowed or word.number <= self.number:
            return False
        wanted = set(word.proposed)
        if not {self.rank, candidate} <= wanted or not wanted <= set(self.view.members):
            return False
        return word.views[-1].number >= self.view.number  # else it does not know where we are; our word tells it

    # ------------------------------------------------------------------------------------------ asking for votes

    def _judge(self, now: float) -> Answer:
        """Ask for votes where somebody is lost, and this worker's turn has come; count those that came."""
        if self._proposed:
            answer = self._decide(now)
            if answer.enter is not None:
                return answer
        lost = self._lookout.lost(now)
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
            return Answer()  # there is no point in asking
        self.number = self._highest = self._highest + 1
        self.candidate, self._proposed, self._asked_s = self.rank, sorted(wanted), now
        self._votes = {self.rank: self.word()}
        return self._decide(now)

    def _reachable(self, lost: Collection[int]) -> set[int]:
        """The members that are heard, and are in the view of each of them."""
        wanted = {rank for rank in self.view.members if rank not in lost}
        for rank in sorted(wanted & self._words.keys()):
            top = self._words[rank].views[-1]
            if top.stamp > self.view.stamp and rank in wanted:
                wanted &= set(top.members)
        return wanted | {self.rank}

    def _count(self, sender: int, word: Presence) -> None:
        if (word.number, word.candidate) == (self.number, self.rank) and sender in self._proposed:
            self._votes[sender] = word
        else:
            self._votes.pop(sender, None)  # it has voted for another, or entered another view

    def _decide(self, now: float) -> Answer:
        """The new view, when all votes are in, or those that will come."""
        missing = [rank for rank in self._proposed if rank not in self._votes]
        if missing:
            hearing = any(rank in self._words and self._words[rank].hears for rank in missing)
            beats = HEARING_BEATS if hearing else CLOSE_BEATS
            if now - self._asked_s < beats * self.interval_s:
                return Answer()
        views = [view for word in self._votes.values() for view in word.views]
        if not self._alone or not all(majority(self._votes, view.members) for view in views):
            return Answer()
        version = max(view.version for view in views)
        return Answer(enter=View(self.number, version, sorted(self._votes), own=True))

    def _withdraw(self) -> None:
        self._proposed, self._votes, self._turn_s = [], {}, math.inf

    def _pause_s(self, beats: int) -> float:
        """So many beats, and a turn for each member of a lower rank that is heard, so that two seldom ask at once."""
        before = sum(rank < self.rank and rank in self._words for rank in self.view.members)
        return (beats + TURN_BEATS * before) * self.interval_s

    def _tells(self, to: Iterable[int]) -> list[tuple[int, Presence]]:
        word = self.word()
        return [(rank, word) for rank in sorted(to) if rank != self.rank]


def _check(sender: int, word: Presence) -> None:
    stamps = [view.stamp for view in word.views]
    if stamps != sorted(set(stamps)) or any(len(set(view.members)) < len(view.members) for view in word.views):
        raise MalformedMessage("views that are in no order, or name a member twice")
    if word.proposed and word.candidate != sender:
        raise MalformedMessage(f"worker {sender} proposes members in the name of worker {word.candidate}")
