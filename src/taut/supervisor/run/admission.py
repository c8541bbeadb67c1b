"""Admission and departure of workers, and the roster. Pure; cluster.py drives it."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence

import msgspec
from msgspec import Struct, field

from taut.core.messages import Donor, Expulsion, Hello, LeaseRequest, Refusal, Roster, Steering, Welcome
from taut.supervisor.data.leases import Leases
from taut.supervisor.faults.election_claims import ElectionClaims
from taut.supervisor.faults.memberships import LiveMemberships
from taut.supervisor.metrics import rate
from taut.supervisor.run.actions import Departed, Joined, KeepStatistics, Outbox, Paused
from taut.supervisor.run.ending import Ending
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.run.workers import WorkerEntry, WorkerTable, platform_differs, refusal

SMALL = 24  # workers: up to so many, a change of the roster is sent at once
MEMBER_NBYTES = 120  # of a roster, about
ROSTER_BYTES_PER_S = 40e6  # at most, for rosters
MOST_FRUITLESS = 3  # times in a row that a worker may rejoin without making a step
LONG_REASON = 40  # characters: a longer one is not repeated for every worker
CALM_S = 2.0  # a calm worker waits for longer before it takes the supervisor for gone
RESUME = "`taut resume` continues the run from a checkpoint with as many workers as you like"
MOST_REFUSED = 1024  # refused processes whose reasons are kept


class ProcessEnd(Struct, frozen=True):
    """A process that ended, to be handled at ``due``."""

    due: float
    pid: int
    reason: str
    clean: bool

    @property
    def script_failed(self) -> bool:
        """Return whether it ended by itself, with an error. A run survives a process that was killed."""
        return not self.clean and not self.reason.startswith("killed by")


class Ledger(Struct):
    """Events of the run as a whole."""

    started_s: float | None = None  # when training started
    lost: int = 0  # expected workers that will not come, before the start
    failures: list[str] = []
    script_failed: bool = False
    phase: int = 0  # announced last
    growths: int = 0  # how often the model has grown
    oddities: int = 0  # malformed and unexpected messages
    rate: float = 1.0  # by which the owner multiplies all learning rates
    slack: float = 0.0  # of tether, as the owner has set it; 0: the codec's own
    steered: int = 0  # changes by the owner


class Admission(Struct):
    """Admits and removes workers, and sends the roster."""

    plan: RunPlan
    members: WorkerTable
    leases: Leases
    ledger: Ledger
    ending: Ending
    outbox: Outbox
    term: int = 0  # how often the supervisor was restarted
    held: dict[int, list[LeaseRequest]] = {}  # lease requests to be answered later, by rank
    refused: dict[tuple[str, int], str] = {}  # (host, pid) -> why
    awaited: set[int] = set()  # workers that have not sent their state since the restart
    memberships: LiveMemberships = field(default_factory=LiveMemberships)  # in lock-step
    claims: ElectionClaims = field(default_factory=ElectionClaims)  # of elected memberships
    withheld: bool = False  # the roster is void: the remaining workers are no majority
    _workers: int = 0  # that learning rates were last scaled for
    _roster_owed: bool = False
    _roster_told_s: float = -math.inf

    def hello(self, connection: bytes, hello: Hello, now: float, closed: bool) -> None:
        """Handle a process that wants to join; ``closed``: no worker is admitted any more."""
        known = self.members.find(connection)
        if known is not None and not known.live:
            self.send_expulsion(known)
            return
        if known is not None:  # it asks again, and gets the same answer
            known.detector.seen(now)
            self._welcome(known)
            if known.donor is not None:
                self.outbox.send(connection, Donor(known.donor))
            return
        why = "the run is ending: no worker can join any more" if closed else self._late()
        why = why or self._unlike(hello)
        if why is not None:
            while len(self.refused) >= MOST_REFUSED:  # bounded: a token holder can make up processes
                del self.refused[next(iter(self.refused))]
            self.refused[hello.host, hello.pid] = why
            self.outbox.record("refused", f"process {hello.pid} on {hello.host}: {why}")
            self.outbox.send(connection, Refusal(why[:4000]))
            return
        worker = self.members.admit(connection, hello, now, self.ledger.phase)
        self.outbox.add(Joined(worker.rank, hello.host, hello.pid))
        previous = self._previous(hello)
        if previous is None or not previous.may_return:
            self.outbox.record("joined", f"worker {worker.rank} (process {hello.pid} on {hello.host})")
        else:
            self._back(worker, previous)
        differs = platform_differs(hello.platform, self.members.workers[0].hello.platform)
        if differs:
            self.outbox.record("platform", f"worker {worker.rank} has {differs} (in brackets: worker 0)")
        self._welcome(worker)
        self.tell_roster(besides=worker)

    def _unlike(self, hello: Hello) -> str | None:
        """Return how the process differs from the run's workers; None if it does not."""
        why = refusal(hello, self.members.model)
        if why is None or not self.ledger.growths:
            return why
        return f"the run's model has grown since its start, and a worker that joins now must have the grown one: {why}"

    def _late(self) -> str | None:
        """Return the reason if no worker can join in mid-run; else None."""
        if self.ledger.started_s is None or self.plan.admits_late:
            return None
        return (
            f"the run has started, and strategy {self.plan.strategy!r}, as it is set, takes no worker after that; "
            "start a new run with more workers; async, or sync without gloo and nccl, lets them come and go"
        )

    def started(self, now: float) -> None:
        """Expel workers that are not ready, if none may join in mid-run: training starts."""
        self._note_rates()
        if not self.plan.admits_late:
            for worker in [one for one in self.members.live() if not one.has_state]:
                self.expel(worker, self._late() or "", now)

    def ready(self) -> None:
        """Announce that another worker has the run's state and takes part in rounds."""
        self.members.version += 1
        self.tell_roster()
        self._note_rates()

    def _note_rates(self) -> None:
        """Record by what the workers scale their learning rates, when that changes."""
        scaling, workers = self.plan.rate_scaling, len(self.members.with_state())
        if scaling is None or self.ledger.started_s is None or self.ending.begun or not workers:
            return
        before, self._workers = self._workers or scaling.workers, workers
        if workers != before:
            factor, there = scaling.factor(workers), "1 worker" if workers == 1 else f"{workers} workers"
            meant = f"they are meant for {scaling.workers} ({scaling.rule})"
            self.outbox.record("scale_lr", f"learning rates are multiplied by {factor:.4g}: {there}, and {meant}")

    def move_on(self, phase: int) -> None:
        """Go on to ``phase``; joining workers begin there."""
        self.ledger.phase = phase
        if self.members.move_on(phase):
            self.tell_roster()

    def gone(
        self,
        worker: WorkerEntry,
        reason: str,
        now: float,
        failure: bool = True,
        certain: bool = True,
        begun: Container[int] | None = None,
    ) -> None:
        """Remove a worker from the run: lease its samples again, and tell the others. ``certain``: its process does
        nothing more. ``begun``: leases that are partly trained on; None: unknown, as are those that it took by itself."""
        self.members.remove(worker, reason[:2000])
        worker.party = not certain or now - worker.calm_s > CALM_S
        self.held.pop(worker.rank, None)
        doubt = self._doubt(worker, now) if begun is None else 0
        samples = 0 if self.ending.begun else self.leases.release(worker.rank, doubt, begun)
        again = f"; {samples} samples are leased again" if samples else ""
        self.outbox.record("gone", f"worker {worker.rank}: {self._reason(worker)}{again}")
        self.outbox.add(KeepStatistics(worker.rank, worker.statistics, final=True))
        self.outbox.add(Departed(worker.rank, worker.reason))
        if failure:
            self.ledger.failures.append(f"worker {worker.rank}: {worker.reason}")
        if self.ledger.started_s is None:
            self.ledger.lost += 1
        self.tell_roster()
        self._note_rates()
        self.ending.lost(worker, now)

    def _reason(self, worker: WorkerEntry) -> str:
        """Return why ``worker`` is gone; a long reason that another worker had is not repeated."""
        same = [each.partition(":")[0] for each in self.ledger.failures if each.endswith(f": {worker.reason}")]
        return f"as {same[0]}" if same and len(worker.reason) > LONG_REASON else worker.reason

    def _doubt(self, worker: WorkerEntry, now: float) -> int:
        """Return an upper bound on samples trained but not reported: everything if silent since before the
        supervisor's restart, else 2 x speed x silence."""
        made = worker.statistics
        if worker.rank in self.awaited or made.wall_s <= 0.0:
            return 1 << 62
        return math.ceil(2.0 * rate(made) * (1.0 + worker.detector.silence_s(now)))

    def failed(self, worker: WorkerEntry, reason: str, now: float) -> None:
        """Remove a worker after an error of its own script: the run's exit code will be 1."""
        self.ledger.script_failed = True
        self.gone(worker, reason, now)

    def unfit(self, worker: WorkerEntry, reason: str, now: float) -> None:
        """Remove a worker that could not take the run's state. In mid-run this is a refusal, not a failure of the run."""
        if self.ledger.started_s is None:
            self.failed(worker, reason, now)
            return
        self.outbox.record(
            "refused", f"worker {worker.rank} (process {worker.hello.pid} on {worker.hello.host}): {reason}"
        )
        self.gone(worker, f"refused: {reason}", now, failure=False)
        self.ledger.failures.append(f"worker {worker.rank}: {worker.reason}")

    def expel(
        self, worker: WorkerEntry, reason: str, now: float, may_return: bool = False, without: tuple[int, ...] = ()
    ) -> None:
        """Remove a worker that may still live; it is told now, and again whenever it speaks. ``may_return``: it did
        nothing wrong, and may rejoin, ``without`` the updates of these workers."""
        worker.expelled, worker.may_return, worker.without = True, may_return, without
        self.gone(worker, reason, now, certain=False)
        self.send_expulsion(worker)

    def send_expulsion(self, worker: WorkerEntry) -> None:
        """Tell a worker that it was removed, and whether it may rejoin: not a run that is ending, nor after several
        times in a row without a step."""
        flaps = worker.fruitless >= MOST_FRUITLESS and not worker.statistics.steps
        late = self.ledger.started_s is not None and not self.plan.admits_late
        welcome = worker.may_return and not late and not self.ending.begun and not flaps
        reason = f"{worker.reason}; it came back {worker.fruitless} times and made no step" if flaps else worker.reason
        if worker.may_return and late and not self.ending.begun:
            reason += f"; strategy {self.plan.strategy!r} takes no worker back in mid-run (async does): {RESUME}"
        self.outbox.send(worker.connection, Expulsion(reason[:4000], welcome, list(worker.without)))

    def superseded(self, hello: Hello, now: float) -> None:
        """Evict the previous rank of a process that wants to rejoin, if a restarted supervisor does not know of its
        eviction. A worker that has spoken to this supervisor keeps its rank."""
        previous = self._previous(hello)
        if previous is not None and previous.live and not previous.connection:
            self.expel(previous, "it was evicted before the supervisor was restarted", now, may_return=True)

    def _previous(self, hello: Hello) -> WorkerEntry | None:
        previous = self.members.workers.get(hello.was)
        same = previous is not None and (previous.hello.host, previous.hello.pid) == (hello.host, hello.pid)
        return previous if same and previous is not None and previous.successor is None else None

    def _back(self, worker: WorkerEntry, previous: WorkerEntry) -> None:
        """Note that an evicted process has rejoined: its eviction was no failure of the run."""
        previous.successor, worker.paused = worker.rank, previous.paused
        if worker.paused:
            self.outbox.add(Paused(worker.rank, True))
        worker.fruitless = 0 if previous.statistics.steps else previous.fruitless + 1
        told = f"worker {previous.rank}: {previous.reason}"
        if told in self.ledger.failures:
            self.ledger.failures.remove(told)
        if self.ledger.started_s is None:
            self.ledger.lost = max(0, self.ledger.lost - 1)
        self.outbox.record("back", f"worker {worker.rank} is back (it was worker {previous.rank}: {previous.reason})")

    def ended(self, exit_: ProcessEnd, now: float) -> None:
        """Handle a process that ended a moment ago, after its last messages."""
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

    def _never_joined(self, exit_: ProcessEnd) -> None:
        elsewhere = next((why for (_, pid), why in self.refused.items() if pid == exit_.pid), None)
        why = self.refused.get((self.plan.host, exit_.pid), elsewhere)
        why = f"refused: {why}" if why else f"{exit_.reason} without joining the run (is taut.join called?)"
        self.ledger.failures.append(f"process {exit_.pid}: {why}")
        self.outbox.record("gone", self.ledger.failures[-1])
        if self.ledger.started_s is None:  # it was expected; a newcomer that could not join is no failure of the run
            self.ledger.lost += 1
            self.ledger.script_failed |= exit_.script_failed

    def _welcome(self, worker: WorkerEntry) -> None:
        plan = self.plan
        started = self.ledger.started_s is not None
        phase = worker.first_phase
        run = (plan.run, plan.seed, plan.workers, plan.settings, self.term, started)
        self.outbox.send(worker.connection, Welcome(worker.rank, *run, phase, self.ledger.growths))
        self.outbox.send(worker.connection, self.roster())
        self.steer(worker)

    def steer(self, worker: WorkerEntry) -> None:
        """Tell a worker what the run's owner has changed, if anything."""
        ledger = self.ledger
        if ledger.steered:
            self.outbox.send(worker.connection, Steering(ledger.steered, ledger.rate, ledger.slack, worker.paused))

    def roster(self) -> Roster:
        """Return the roster to send. It is void if the remaining workers are no majority."""
        roster = self.members.roster()
        if not self.plan.elects:
            return roster
        ready = [member.rank for member in roster.members if member.ready]
        started = self.ledger.started_s is not None
        self.withheld = started and not self.enough(ready)
        if self.withheld:
            return msgspec.structs.replace(roster, version=0, view=0)
        self.memberships.tell(roster.stamp, ready, started)
        return roster

    def enough(self, heard: Iterable[int]) -> bool:
        """Return whether these workers may go on, considering live memberships and claimed elections."""
        workers, ranks = self.members.workers, set(heard)
        claimed = self.claims.claimed(self.members.view, lambda rank: "live" if workers[rank].live else "gone")
        return self.memberships.enough(ranks, lambda rank: workers[rank].party, [set(view.members) for view in claimed])

    def tell_roster(self, besides: WorkerEntry | None = None) -> None:
        live = self.members.live()
        if len(live) > SMALL:  # changes within a moment are sent together
            self._roster_owed = True
            return
        self._send_roster(live, besides)

    def tell_late(self, now: float) -> None:
        """Send the roster to many workers once in a while: n lists of n are many bytes, and a later one replaces them."""
        live = self.members.live()
        if self.withheld and self.enough(worker.rank for worker in self.members.with_state()):
            self._roster_owed = True
        pause_s = len(live) ** 2 * MEMBER_NBYTES / ROSTER_BYTES_PER_S
        if self._roster_owed and now - self._roster_told_s >= pause_s:
            self._roster_owed, self._roster_told_s = False, now
            self._send_roster(live, None)

    def _send_roster(self, live: Sequence[WorkerEntry], besides: WorkerEntry | None) -> None:
        if self.ending.verdict is not None:
            return  # after the verdict workers exchange nothing any more
        roster = self.roster()
        for worker in live:
            if worker is not besides:
                self.outbox.send(worker.connection, roster)
