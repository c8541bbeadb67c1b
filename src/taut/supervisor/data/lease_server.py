"""Answers lease requests, holds those that can only be answered later, and reserves samples. Pure; cluster.py drives
it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct, field

from taut.core.messages import OWN_BITS, OWN_LEASES, Expulsion, LeaseRequest, LeaseTaken, NoLease, Reserve
from taut.supervisor.data.leases import HOLD
from taut.supervisor.data.lengths import Lengths, other_samples
from taut.supervisor.data.reserves import Reserves
from taut.supervisor.metrics import rate
from taut.supervisor.run.admission import Admission
from taut.supervisor.run.workers import WorkerEntry

MOST_HELD = 4  # requests of one worker: more than it sends ahead
BALANCE_S = 0.5
MOST_AHEAD = 64  # passes: without a supervisor workers go through a few reserved ones


class LeaseServer(Struct):
    """Answers lease requests. ``sharers``: number of workers that share the data. A worker with other data is told at
    once that a pass is used up, although a dead worker may hold a part of it: that is leased again in the next pass."""

    admission: Admission
    reserves: Reserves
    sharers: int = 1
    asks: dict[int, LeaseRequest] = {}  # the last request of each worker
    balanced_s: float = -1e9
    reached: int = 0  # earlier passes have no reserves
    lengths: Lengths = field(default_factory=Lengths)

    def asked(self, worker: WorkerEntry, request: LeaseRequest, now: float) -> bool:
        """Handle a lease request. Return False if the worker does not train, or is far ahead of all others."""
        if worker.state not in ("ready", "training") and not self.admission.ending.begun:
            return False
        if request.epoch > self.reached + MOST_AHEAD:
            begun = (epoch for epoch, each in self.admission.leases.passes.items() if each.begun)
            if request.epoch > max(begun, default=0) + MOST_AHEAD:
                return False
        self.request(worker, request, now)
        return True

    def request(self, worker: WorkerEntry, request: LeaseRequest, now: float) -> None:
        """Answer the request now, or hold it."""
        admission, final = self.admission, max(request.epoch, request.until - 1)
        if admission.ending.begun:
            admission.outbox.send(worker.connection, NoLease(final))
            return
        if not self._same_samples(worker, request, now):
            return
        if self._helps_itself(worker.rank, final, request.length):
            self._hold(worker, request)
            return
        epoch = admission.leases.earliest(request.epoch, final, request.length)
        if epoch > self.reached and self.reserves.before(epoch):
            self._tell(self.reserves.call_in(epoch - 1, now, request.batch))
        else:
            self.reached = max(epoch, self.reached)
        if not self._agreed(worker, epoch, request, now):
            return
        answer = admission.leases.request(
            worker.rank,
            epoch,
            request.length,
            batch=request.batch,
            live_workers=self._sharers(request),
            last=request.last,
            least=request.least,
            after=(final - epoch) * request.length,
            first=request.epoch,
            final=final,
        )
        if answer is not None and answer != HOLD:
            admission.outbox.send(worker.connection, answer)
            return
        self._tell(self.reserves.call_in(final, now, request.batch))
        if answer is None and not self.reserves.outstanding(final, now, patient=request.last):
            admission.outbox.send(worker.connection, NoLease(final))
            return
        # of the last data, which dead workers may leave, each worker gets only its turn
        self._hold(worker, request, 1 if answer == HOLD else MOST_HELD)

    def _sharers(self, request: LeaseRequest) -> int:
        """Return how many workers as fast as this one would share the data: all get leases for equally many rounds."""
        return max(1, round(request.global_batch / request.batch)) if request.global_batch else self.sharers

    def _same_samples(self, worker: WorkerEntry, request: LeaseRequest, now: float) -> bool:
        """Note the request. When a worker begins other passes, compare all their samples; return False if it is wrong."""
        previous, self.asks[worker.rank] = self.asks.get(worker.rank), request
        known = previous is not None and (previous.until, previous.samples) == (request.until, request.samples)
        if known or not request.samples:
            return True
        admission = self.admission
        for rank, why in other_samples(self.asks, worker.rank, self._voters(), admission.plan.workers).items():
            self._refuse(admission.members.workers[rank], why, now)
        return worker.live

    def _voters(self) -> set[int]:
        return {one.rank for one in self.admission.members.live() if one.state in ("ready", "training")}

    def _agreed(self, worker: WorkerEntry, epoch: int, request: LeaseRequest, now: float) -> bool:
        """Return whether the pass has the length that the request gives. If not, hold it or refuse the worker."""
        lengths, leases, members = self.lengths, self.admission.leases, self.admission.members
        if epoch not in lengths.votes:
            lengths.forget({before: each.length for before, each in leases.passes.items()}, self._voters())
        if not lengths.vote(worker.rank, epoch, request.length):
            self._refuse(worker, lengths.contradiction(worker.rank, epoch, request.length), now)
            return False
        current = leases.passes.get(epoch)
        if current is None or not current.begun:
            return True
        if current.length == request.length and epoch not in lengths.disputed:
            return True
        ruling = lengths.rule(epoch, current.length, self.asks, self._voters(), self.admission.plan.workers, now)
        if ruling is None:
            self._hold(worker, request)
            return False
        for rank, why in ruling.wrong.items():
            self._refuse(members.workers[rank], why, now)
        if ruling.length is not None and ruling.length != current.length:
            leases.restart(epoch, ruling.length)
        return worker.live

    def _refuse(self, worker: WorkerEntry, why: str, now: float) -> None:
        """Send a worker with another data set away. A newcomer is refused, as one with another model: this is no
        failure of the run."""
        admission = self.admission
        late = worker.rank >= admission.plan.workers and not worker.statistics.steps
        (admission.gone if late else admission.failed)(worker, why, now)
        admission.outbox.send(worker.connection, Expulsion(worker.reason))

    @property
    def epochs(self) -> int:
        """Return the number of passes that most scripts ask for; 0 if they do not say which is the last."""
        said = Counter(ask.until for ask in self.asks.values() if ask.last)
        return said.most_common(1)[0][0] if said else 0

    def _helps_itself(self, rank: int, final: int, length: int) -> bool:
        """Return whether a single worker is to take its reserve before it gets leases: in the order of the data,
        however late it hears of an offer, so that its run is reproducible."""
        leases = self.admission.leases
        spans = leases.reserved.get(rank, [])
        mine = any(span[0] <= final and leases.passes[span[0]].length == length for span in spans)
        return self.sharers == 1 and mine and not leases.returned

    def _hold(self, worker: WorkerEntry, request: LeaseRequest, most: int = MOST_HELD) -> None:
        held = self.admission.held.setdefault(worker.rank, [])
        if len(held) < most:
            held.append(request)

    def serve(self, now: float) -> None:
        """Try the held requests again, in turns: workers may be done or gone, or the run is being drained."""
        held = dict(self.admission.held)
        self.admission.held.clear()
        for turn in range(MOST_HELD):
            for rank, requests in held.items():
                if turn < len(requests) and self.admission.members.workers[rank].live:
                    self.request(self.admission.members.workers[rank], requests[turn], now)

    def balance(self, now: float) -> None:
        """Reserve samples for training workers, by what is left and their speeds."""
        if now - self.balanced_s < BALANCE_S or self.admission.ending.begun:
            return
        self.balanced_s = now
        for rank in [rank for rank in self.asks if not self.admission.members.workers[rank].live]:
            self.gone(rank)
        training = {
            worker.rank: worker.statistics
            for worker in self.admission.members.workers.values()
            if worker.state == "training" and worker.leave is None and worker.rank not in self.admission.awaited
        }
        asks = {rank: self.asks[rank] for rank in training if rank in self.asks}
        rates = {rank: rate(made) for rank, made in training.items() if made.wall_s > 0.0}
        self._tell(self.reserves.balance(asks, rates, now, alone=self.sharers == 1))

    def taken(self, worker: WorkerEntry, message: LeaseTaken) -> bool:
        """Note that a worker took a lease by itself. Return False if it could not."""
        lease = message.lease
        mine = lease.lease - OWN_LEASES >> OWN_BITS == worker.rank
        its = self.admission.leases.passes.get(lease.epoch)
        if not mine or its is None or its.length != message.length or not self.admission.leases.taken(worker.rank, lease):
            return False
        self.reserves.taken(worker.rank, (lease.epoch, lease.lo, lease.hi))
        return True

    def returned(self, worker: WorkerEntry, now: float) -> None:
        """Offer a worker its reserve again, after it has sent its state."""
        reserve = self.reserves.renewed(worker.rank, now)
        if reserve is not None and not self.admission.ending.begun:
            self._tell({worker.rank: reserve})

    def gone(self, rank: int) -> None:
        """Forget a worker's request and reserve."""
        self.asks.pop(rank, None)
        self.reserves.gone(rank)

    def _tell(self, reserves: Mapping[int, Reserve]) -> None:
        for rank, reserve in reserves.items():
            self.admission.outbox.send(self.admission.members.workers[rank].connection, reserve)
