"""Who comes and who goes: admission, the roster, departures and what follows from them. Pure; cluster.py
drives it."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from taut.core.messages import Donor, Expulsion, Hello, LeaseRequest, Refusal, Roster, Welcome
from taut.supervisor.data.leases import Leases
from taut.supervisor.faults.election_claims import ElectionClaims
from taut.supervisor.faults.memberships import LiveMemberships
from taut.supervisor.metrics import rate
from taut.supervisor.run.actions import Departed, Joined, Measured, Outbox
from taut.supervisor.run.ending import Ending
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.run.workers import Membership, Worker, refusal

SMALL = 24  # workers: up to so many, a change of the roster is told at once
MEMBER_NBYTES = 120  # of a roster, about
ROSTER_BYTES_PER_S = 40e6  # at most, for rosters
MOST_FRUITLESS = 3  # times running that a worker may come back without making a step before it is given up again
LONG_REASON = 40  # characters: a longer one is not said again for every worker
CALM_S = 2.0  # after it heard the supervisor well, a worker waits for longer before it takes it for gone
RESUME = "`taut resume` continues the run from a checkpoint with as many workers as you like"
MOST_REFUSED = 1024  # processes of which is remembered why they were not admitted


@dataclass(frozen=True, slots=True)
class Exit:
    """A process that ended, to be judged at ``due``."""

    due: float
    pid: int
    reason: str
    clean: bool

    @property
    def script_failed(self) -> bool:
        """It ended by itself, with an error. One that was killed is what the run is made to survive."""
        return not self.clean and not self.reason.startswith("killed by")


@dataclass(slots=True)
class Ledger:
    """What happened to the run as a whole."""

    started_s: float | None = None  # when training started
    lost: int = 0  # expected workers that will not come, counted before the start
    failures: list[str] = field(default_factory=list)
    script_failed: bool = False
    phase: int = 0  # of a run that changes its strategy: the one announced last
    oddities: int = 0  # malformed and unexpected messages


@dataclass(slots=True)
class Admission:
    """The doors of the run."""

    plan: RunPlan
    members: Membership
    leases: Leases
    ledger: Ledger
    ending: Ending
    outbox: Outbox
    term: int = 0  # of the supervisor's lives
    held: dict[int, list[LeaseRequest]] = field(default_factory=dict)  # requests to be answered later, by rank
    refused: dict[tuple[str, int], str] = field(default_factory=dict)  # (host, pid) -> why
    awaited: set[int] = field(default_factory=set)  # who has not said where it stands since the supervisor came back
    agreement: LiveMemberships = field(default_factory=LiveMemberships)  # of a run in lock-step
    claims: ElectionClaims = field(default_factory=ElectionClaims)  # of workers who went on by themselves
    withheld: bool = False  # nobody goes on by the roster as it is: those who are left are no majority
    _roster_owed: bool = False
    _roster_told_s: float = -math.inf

    def hello(self, connection: bytes, hello: Hello, now: float, closed: bool) -> None:
        """A process wants to join; ``closed``: nobody is admitted any more."""
        known = self.members.find(connection)
        if known is not None and not known.live:
            self.expel(known)
            return
        if known is not None:  # it asks again: the answer is the same
            known.detector.seen(now)
            self._welcome(known)
            if known.donor is not None:
                self.outbox.send(connection, Donor(known.donor))
            return
        why = "the run is ending: no worker can join any more" if closed else self._late()
        why = why or refusal(hello, self.members.model)
        if why is not None:
            while len(self.refused) >= MOST_REFUSED:  # anyone who holds a token can make up processes
                del self.refused[next(iter(self.refused))]
            self.refused[hello.host, hello.pid] = why
            self.outbox.record("refused", f"process {hello.pid} on {hello.host}: {why}")
            self.outbox.send(connection, Refusal(why[:4000]))
            return
        worker = self.members.admit(connection, hello, now, self.ledger.phase)
        self.outbox.add(Joined(worker.rank, hello.host, hello.pid))
        former = self._former(hello)
        if former is None or not former.may_return:
            self.outbox.record("joined", f"worker {worker.rank} (process {hello.pid} on {hello.host})")
        else:
            self._back(worker, former)
        self._welcome(worker)
        self.tell_roster(besides=worker)

    def _late(self) -> str | None:
        """Why nobody can join in mid-run, where that is so."""
        if self.ledger.started_s is None or self.plan.admits_late:
            return None
        return (
            f"the run has started, and strategy {self.plan.strategy!r}, as it is set, takes no worker after that; "
            "start a new run with more workers; async, or sync without gloo and nccl, lets them come and go"
        )

    def started(self, now: float) -> None:
        """Training starts. Where nobody may join in mid-run, who is not ready by now is too late."""
        if not self.plan.admits_late:
            for worker in [one for one in self.members.live() if not one.has_state]:
                self.given_up(worker, self._late() or "", now)

    def ready(self) -> None:
        """Somebody has the run's state now: rounds may count on it."""
        self.members.version += 1
        self.tell_roster()

    def move_on(self, phase: int) -> None:
        """The run goes on to ``phase``, and who is only joining begins there: nobody waits for it in the one before."""
        self.ledger.phase = phase
        if self.members.move_on(phase):
            self.tell_roster()

    def gone(
        self,
        worker: Worker,
        reason: str,
        now: float,
        failure: bool = True,
        certain: bool = True,
        begun: Container[int] | None = None,
    ) -> None:
        """Out of the run: its leases are dealt again, the others are told. ``certain``: it does no more.
        ``begun``: leases that it trained on in part; None: nobody knows, nor what it took by itself."""
        self.members.remove(worker, reason[:2000])
        worker.party = not certain or now - worker.calm_s > CALM_S
        self.held.pop(worker.rank, None)
        doubt = self._doubt(worker, now) if begun is None else 0
        samples = 0 if self.ending.begun else self.leases.release(worker.rank, doubt, begun)
        again = f"; {samples} samples are dealt again" if samples else ""
        self.outbox.record("gone", f"worker {worker.rank}: {self._reason(worker)}{again}")
        self.outbox.add(Measured(worker.rank, worker.statistics, final=True))
        self.outbox.add(Departed(worker.rank, worker.reason))
        if failure:
            self.ledger.failures.append(f"worker {worker.rank}: {worker.reason}")
        if self.ledger.started_s is None:
            self.ledger.lost += 1
        self.tell_roster()
        self.ending.lost(worker, now)

    def _reason(self, worker: Worker) -> str:
        """Return why ``worker`` is gone; a long reason that was given for another one is not said again."""
        same = [each.partition(":")[0] for each in self.ledger.failures if each.endswith(f": {worker.reason}")]
        return f"as {same[0]}" if same and len(worker.reason) > LONG_REASON else worker.reason

    def _doubt(self, worker: Worker, now: float) -> int:
        """So many samples it may have trained on by itself, and could not say so: all, of one that was silent since
        before the supervisor died; else what twice its speed makes of its silence."""
        made = worker.statistics
        if worker.rank in self.awaited or made.wall_s <= 0.0:
            return 1 << 62
        return math.ceil(2.0 * rate(made) * (1.0 + worker.detector.silence_s(now)))

    def failed(self, worker: Worker, reason: str, now: float) -> None:
        """Out of the run by an error of its own script: the run's exit code will tell."""
        self.ledger.script_failed = True
        self.gone(worker, reason, now)

    def unfit(self, worker: Worker, reason: str, now: float) -> None:
        """It could not take over the run's state. In mid-run that is as if it had been refused: no failure of the run's,
        which goes on without it."""
        if self.ledger.started_s is None:
            self.failed(worker, reason, now)
            return
        self.outbox.record(
            "refused", f"worker {worker.rank} (process {worker.hello.pid} on {worker.hello.host}): {reason}"
        )
        self.gone(worker, f"refused: {reason}", now, failure=False)
        self.ledger.failures.append(f"worker {worker.rank}: {worker.reason}")

    def given_up(
        self, worker: Worker, reason: str, now: float, may_return: bool = False, without: tuple[int, ...] = ()
    ) -> None:
        """Out of the run, though it may still live: it is told now, and again whenever it speaks. ``may_return``: it did
        nothing wrong, and is welcome back, ``without`` what these workers sent it."""
        worker.expelled, worker.may_return, worker.without = True, may_return, without
        self.gone(worker, reason, now, certain=False)
        self.expel(worker)

    def expel(self, worker: Worker) -> None:
        """Tell it that it was given up, and whether it may come back: not to a run that is ending, nor any more where it
        came back several times running and did not get anywhere."""
        flaps = worker.fruitless >= MOST_FRUITLESS and not worker.statistics.steps
        late = self.ledger.started_s is not None and not self.plan.admits_late
        welcome = worker.may_return and not late and not self.ending.begun and not flaps
        reason = f"{worker.reason}; it came back {worker.fruitless} times and made no step" if flaps else worker.reason
        if worker.may_return and late and not self.ending.begun:
            reason += f"; strategy {self.plan.strategy!r} takes nobody back in mid-run (async does): {RESUME}"
        self.outbox.send(worker.connection, Expulsion(reason[:4000], welcome, list(worker.without)))

    def superseded(self, hello: Hello, now: float) -> None:
        """A process asks for another place while, for a supervisor that came back from what it kept, it still has the
        one that it was told to leave. Nobody's place is lost that way who has spoken to this supervisor."""
        former = self._former(hello)
        if former is not None and former.live and not former.connection:
            self.given_up(former, "it was given up before the supervisor came back", now, may_return=True)

    def _former(self, hello: Hello) -> Worker | None:
        """The worker that this process says it was, if that can be."""
        former = self.members.workers.get(hello.was)
        same = former is not None and (former.hello.host, former.hello.pid) == (hello.host, hello.pid)
        return former if same and former is not None and former.successor is None else None

    def _back(self, worker: Worker, former: Worker) -> None:
        """A process that was given up has another place: that was no failure of the run's."""
        former.successor = worker.rank
        worker.fruitless = 0 if former.statistics.steps else former.fruitless + 1
        told = f"worker {former.rank}: {former.reason}"
        if told in self.ledger.failures:
            self.ledger.failures.remove(told)
        if self.ledger.started_s is None:
            self.ledger.lost = max(0, self.ledger.lost - 1)
        self.outbox.record("back", f"worker {worker.rank} is back (it was worker {former.rank}: {former.reason})")

    def ended(self, exit_: Exit, now: float) -> None:
        """A process ended a moment ago, and what it had to say was heard."""
        worker = self.members.find_pid(exit_.pid, self.plan.host) if exit_.pid else None
        if worker is None:
            self._never_joined(exit_)
        elif not worker.live or worker.ended:
            return
        elif worker.state == "finished":
            worker.ended = True
            if not exit_.clean:
                self.ledger.script_failed |= exit_.script_failed
                self.ledger.failures.append(f"worker {worker.rank}: {exit_.reason} after the end of training")
        else:
            worker.expelled = True
            self.ledger.script_failed |= exit_.script_failed
            self.gone(worker, f"{exit_.reason} before the end of the run" if exit_.clean else exit_.reason, now)

    def _never_joined(self, exit_: Exit) -> None:
        why = self.refused.get((self.plan.host, exit_.pid))
        why = f"refused: {why}" if why else f"{exit_.reason} without joining the run (is taut.join called?)"
        self.ledger.failures.append(f"process {exit_.pid}: {why}")
        self.outbox.record("gone", self.ledger.failures[-1])
        if self.ledger.started_s is None:  # it was expected; a latecomer that could not join is no failure of the run
            self.ledger.lost += 1
            self.ledger.script_failed |= exit_.script_failed

    def _welcome(self, worker: Worker) -> None:
        plan = self.plan
        started = self.ledger.started_s is not None
        phase = worker.first_phase
        welcome = Welcome(worker.rank, plan.run, plan.seed, plan.workers, plan.settings, self.term, started, phase)
        self.outbox.send(worker.connection, welcome)
        self.outbox.send(worker.connection, self.roster())

    def roster(self) -> Roster:
        """As it is told now. Where those that are left are no majority it is void: nobody goes on by it."""
        roster = self.members.roster()
        if not self.plan.elects:
            return roster
        ready = [member.rank for member in roster.members if member.ready]
        started = self.ledger.started_s is not None
        self.withheld = started and not self.enough(ready)
        if self.withheld:
            return msgspec.structs.replace(roster, version=0, view=0)
        self.agreement.tell(roster.stamp, ready, started)
        return roster

    def enough(self, heard: Iterable[int]) -> bool:
        """Whether these may go on, as far as others may do so without a supervisor, or say that they have."""
        workers, ranks = self.members.workers, set(heard)
        claimed = self.claims.claimed(self.members.view, lambda rank: "live" if workers[rank].live else "gone")
        return self.agreement.enough(ranks, lambda rank: workers[rank].party, [set(view.members) for view in claimed])

    def tell_roster(self, besides: Worker | None = None) -> None:
        live = self.members.live()
        if len(live) > SMALL:  # what changes within a moment is told at once
            self._roster_owed = True
            return
        self._send_roster(live, besides)

    def tell_late(self, now: float) -> None:
        """Of many workers, all hear of all once in a while: n lists of n members are a lot of bytes, and a later list
        replaces an earlier one."""
        live = self.members.live()
        if self.withheld and self.enough(worker.rank for worker in self.members.with_state()):
            self._roster_owed = True
        pause_s = len(live) ** 2 * MEMBER_NBYTES / ROSTER_BYTES_PER_S
        if self._roster_owed and now - self._roster_told_s >= pause_s:
            self._roster_owed, self._roster_told_s = False, now
            self._send_roster(live, None)

    def _send_roster(self, live: Sequence[Worker], besides: Worker | None) -> None:
        if self.ending.verdict is not None:
            return  # after the verdict nobody exchanges anything any more
        roster = self.roster()
        for worker in live:
            if worker is not besides:
                self.outbox.send(worker.connection, roster)
