"""Workers that elect views, a supervisor that gives workers up and takes newcomers in, and a network without any manners.

Everything that protects a run is the real thing (``Election``, ``LiveMemberships``, ``ElectionClaims``); everything that
only makes trouble less likely is left to chance: who hears the supervisor, whom it believes to be dead, what arrives and
when. A round is made in one instant, by all members of a view who have heard from all that they are in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from taut.core.messages import Presence, View
from taut.strategies.allreduce.round_agreement import NEW
from taut.strategies.election.election import Answer, Election
from taut.supervisor.faults.election_claims import ElectionClaims, Fate
from taut.supervisor.faults.memberships import LiveMemberships

RHYTHM = [100] * 64  # of words: who is not heard for a second is lost
BEAT_S = 0.5


@dataclass
class Worker:
    """``last_rounds``: by stamp, which members told that they are in that view, and after which round."""

    rank: int
    assembly: Election
    round: int = 0
    alone: bool = False  # it hears no supervisor
    last_rounds: dict[int, dict[int, int]] = field(default_factory=dict)

    @property
    def at(self) -> int:
        return self.assembly.view.stamp if self.assembly.views else -1

    @property
    def agreed(self) -> bool:
        view = self.assembly.view
        return self.last_rounds.get(view.stamp, {}).keys() >= set(view.members)


@dataclass
class Supervisor:
    members: set[int]
    version: int = 1
    view: int = 0
    agreement: LiveMemberships = field(default_factory=LiveMemberships)
    claims: ElectionClaims = field(default_factory=ElectionClaims)

    def roster(self) -> View:
        view = View(self.view, self.version, sorted(self.members))
        self.agreement.tell(view.stamp, view.members, started=True)
        return view


class World:
    """Of so many workers at first, all in one view that nobody has agreed on yet."""

    def __init__(self, workers: int, seed: int) -> None:
        self.random = Random(seed)
        self.workers: dict[int, Worker] = {}
        self.dead: set[int] = set()
        self.ended: set[int] = set()  # for certain, and alone
        self.mail: list[tuple[int, int, object]] = []  # sender, receiver (-1: the supervisor), what
        self.now = 0.0
        self.top = 0  # the last round that was made
        self.made: list[View] = []
        self.findings: Counter[str] = Counter()  # what the supervisor made of elections
        self.supervisor = Supervisor(set(range(workers)))
        for rank in range(workers):
            self.workers[rank] = Worker(rank, Election(rank))
        first = self.supervisor.roster()
        for rank in range(workers):
            self.enter(self.workers[rank], first)

    # -------------------------------------------------------------------------------------------------- workers

    def enter(self, worker: Worker, view: View) -> None:
        if worker.rank not in view.members or view.stamp <= worker.at:
            return
        worker.assembly.entered(view)
        worker.last_rounds = {
            stamp: last_rounds for stamp, last_rounds in worker.last_rounds.items() if stamp >= view.stamp
        }
        worker.last_rounds.setdefault(view.stamp, {})[worker.rank] = worker.round
        for other in view.members:
            if other != worker.rank:
                self.post(worker.rank, other, (view.stamp, worker.round))

    def tick(self, rank: int, alone: bool) -> None:
        worker = self.workers[rank]
        worker.alone = alone
        self._agree(worker)
        self._do(worker, worker.assembly.tick(self.now, alone, alone, RHYTHM))

    def _agree(self, worker: Worker) -> None:
        if worker.assembly.views and worker.agreed:
            worker.assembly.agreed(worker.at)

    def _do(self, worker: Worker, answer: Answer) -> None:
        tells = answer.tells
        if answer.enter is not None:
            self.enter(worker, answer.enter)
            tells = [*tells, *worker.assembly.proclaim()]
        for to, word in tells:
            self.post(worker.rank, to, word)

    def beat(self, rank: int) -> None:
        """To the supervisor."""
        assembly = self.workers[rank].assembly
        self._agree(self.workers[rank])
        agreed = assembly.views[0].stamp if assembly.has_agreed else 0
        calm = not assembly.voted and not self.workers[rank].alone
        self.post(rank, -1, (agreed, assembly.view if assembly.view.own else None, calm))

    def make_round(self, view: View) -> bool:
        """All members of the view make the next round, if they can."""
        members = [self.workers[rank] for rank in view.members]
        if any(one.rank in self.dead or one.at != view.stamp or not one.agreed for one in members):
            return False
        after = max(one.round for one in members)
        if after == NEW:
            return False  # whoever had the run's state has ended
        # What only the ended had is lost with them; what anybody has that lives is not made again.
        had = max(one.round for one in self.workers.values() if one.rank not in self.dead)
        assert after == had, f"round {after + 1} is made twice: by {view} after {self.made[-1]}"
        self.top = after + 1
        self.made.append(view)
        for one in members:
            one.round = self.top
        return True

    # ------------------------------------------------------------------------------------------------ messages

    def post(self, sender: int, to: int, what: object) -> None:
        self.mail.append((sender, to, what))

    def deliver(self, at: int, keep: bool = False) -> None:
        sender, to, what = self.mail[at] if keep else self.mail.pop(at)
        if to == -1:
            self._report(sender, *what)  # type: ignore[misc]
            return
        if to in self.dead:
            return
        worker = self.workers[to]
        if isinstance(what, Presence):
            if worker.assembly.views:
                self._agree(worker)
                self._do(worker, worker.assembly.heard(sender, what, self.now))
        elif isinstance(what, View):
            self.enter(worker, what)
        else:
            stamp, round = what  # type: ignore[misc]
            worker.last_rounds.setdefault(stamp, {})[sender] = round
            self._agree(worker)

    # ------------------------------------------------------------------------------------------- the supervisor

    def _report(self, sender: int, agreed: int, elected: View | None, calm: bool) -> None:
        supervisor = self.supervisor
        if sender not in supervisor.members:
            return
        if elected is not None and elected.number > supervisor.view:
            assert len(elected.members) > 1 and sender in elected.members and elected.version <= supervisor.version
            assert any(set(elected.members) <= each.members for each in supervisor.agreement.told)
        supervisor.claims.beat(sender, elected, calm, self.now, supervisor.view)
        self._judge()
        supervisor.agreement.agreed(agreed)
        if self._enough(supervisor.members):  # it may have missed it
            self.post(-1, sender, supervisor.roster())

    def _judge(self) -> None:
        """As ``supervisor/faults/follow_election.py`` does."""
        supervisor = self.supervisor
        told = [each.members for each in supervisor.agreement.told]
        verdict = supervisor.claims.judge(self.now, supervisor.view, told, self._fate)
        if verdict is None:
            if supervisor.claims.unclear(self.now, supervisor.view, self._fate):
                supervisor.version += 1
                self.tell()
            return
        self.findings[verdict.finding] += 1
        new = supervisor.agreement.elected(verdict.view)
        if verdict.finding == "open":
            if new:
                self.tell()
            return
        supervisor.view, supervisor.version = verdict.view.number, max(supervisor.version, verdict.view.version) + 1
        if verdict.finding == "true":
            supervisor.members &= set(verdict.view.members)
        self.tell()

    def _fate(self, rank: int) -> Fate:
        if rank in self.supervisor.members:
            return "gone" if rank in self.dead else "live"
        return "ended" if rank in self.ended else "gone"

    def _enough(self, heard: set[int]) -> bool:
        claimed = self.supervisor.claims.claimed(self.supervisor.view, self._fate)
        members = [view.members for view in claimed]
        return self.supervisor.agreement.enough(heard, lambda rank: rank not in self.ended, members)

    def tell(self) -> None:
        if not self._enough(self.supervisor.members):
            return
        roster = self.supervisor.roster()
        for rank in roster.members:
            self.post(-1, rank, roster)

    def give_up(self, lost: set[int]) -> None:
        """The supervisor takes these for dead, rightly or not; it must not always act on it."""
        stay = self.supervisor.members - lost
        if stay and self._enough(stay):
            self.supervisor.members, self.supervisor.version = stay, self.supervisor.version + 1
            self.tell()

    def end(self, rank: int) -> None:
        """Its process ended; whoever started it may see that. If it was calm, it has not gone on with others."""
        self.dead.add(rank)
        assembly = self.workers[rank].assembly
        if not assembly.views or (not assembly.voted and assembly.view.number <= self.supervisor.view):
            self.ended.add(rank)
        if self.random.random() < 0.5 and self.supervisor.members > {rank}:
            self.supervisor.members, self.supervisor.version = (
                self.supervisor.members - {rank},
                self.supervisor.version + 1,
            )
            self.tell()

    def admit(self) -> None:
        rank = len(self.workers)
        self.workers[rank] = Worker(rank, Election(rank), NEW)
        self.supervisor.members.add(rank)
        self.supervisor.version += 1
        self.tell()
