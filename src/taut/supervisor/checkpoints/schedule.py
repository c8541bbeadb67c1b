"""The schedule of checkpoints: when one is due, which parts are here, which samples it lacks. Pure; cluster.py drives it.

Every training worker is asked for its part. All leases that it reports as trained after its ``CheckpointBegun`` are not
in the checkpoint; since connections keep their order, all that it reported before are. The manifest is written when
every part is on disk; without a manifest there is no checkpoint, so a kill at any instant leaves the last good one.

Where workers are islands, the run of the first part has the schedule. The other parts' runs follow: a checkpoint begins
there with the first worker that has copied its part, since its island agreed to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from taut.core.checkpoint_names import part_name
from taut.core.messages import Checkpoint, CheckpointBegun, CheckpointDone
from taut.core.sample_ranges import Span, joined
from taut.specs import Interval
from taut.supervisor.checkpoints.folder import PartFile
from taut.supervisor.data.leases import Leases
from taut.supervisor.data.passes import Pass
from taut.supervisor.run.actions import DropCheckpoint, Outbox, SaveCheckpoint
from taut.supervisor.run.admission import Ledger
from taut.supervisor.run.workers import WorkerEntry, WorkerTable


class Parts(Struct):
    """A checkpoint under way. ``asked``: workers that have not begun; ``writing``: those that have, and are not done."""

    number: int
    asked: set[int]
    writing: set[int] = set()
    written: dict[int, CheckpointDone] = {}
    reached: dict[int, int] = {}  # lease -> first index that is not trained on in the copy
    later: list[Span] = []  # trained on after the copies were made
    failures: list[str] = []
    copied: dict[int, CheckpointBegun] = {}  # by worker
    late: bool = False  # the next one is due already; this was recorded

    def drop(self, rank: int) -> None:
        self.asked.discard(rank)
        self.writing.discard(rank)


class Checkpointing(Struct):
    """The schedule. ``every``: None for no checkpoints. ``number``: of the last checkpoint. ``last``: its position in
    steps or epochs, or its time (None: at the start). ``follows``: another part's run has the schedule."""

    every: Interval | None
    members: WorkerTable
    leases: Leases
    outbox: Outbox
    ledger: Ledger = field(default_factory=Ledger)
    follows: bool = False
    number: int = 0
    last: float | None = None
    parts: Parts | None = None
    saving: bool = False

    def resume(self, steps: int, passes: Mapping[int, int], undone: Iterable[Span]) -> None:
        """Continue from a checkpoint, before any lease was given."""
        left = continued(passes, undone)
        self.leases.passes.update(left.passes)
        self.leases.returned.extend(left.returned)
        self.leases.untouched.extend(left.untouched)
        if self.every is not None and self.every.unit == "steps":
            self.last = float(steps)

    def hasten(self) -> None:
        """Let the next checkpoint be due now."""
        self.last = -math.inf

    def begun(self, worker: WorkerEntry, message: CheckpointBegun) -> bool:
        """Note that a worker has copied its part. Return False if it was not asked for."""
        parts = self._asked(worker, message.number)
        if parts is None or message.number != parts.number or worker.rank not in parts.asked:
            return self.follows
        parts.asked.discard(worker.rank)
        parts.writing.add(worker.rank)
        parts.copied[worker.rank] = message
        for lease in message.holds:
            holder, mine = self.leases.open.get(lease.lease, (None, None))
            if mine is not None and holder == worker.rank and mine.lo <= lease.lo <= mine.hi:
                parts.reached[lease.lease] = lease.lo
        return True

    def done(self, worker: WorkerEntry, message: CheckpointDone) -> bool:
        """Note that a worker's part is on disk, or cannot be. Return False if it was not asked for."""
        parts = self._asked(worker, message.number)
        if parts is None or message.number != parts.number:
            return self.follows
        if worker.rank not in (parts.asked | parts.writing if message.error else parts.writing):
            return False
        parts.drop(worker.rank)
        if message.error:
            parts.failures.append(f"worker {worker.rank}: {message.error}")
        else:
            parts.written[worker.rank] = message
        return True

    def _asked(self, worker: WorkerEntry, number: int) -> Parts | None:
        """Return the checkpoint under way. Where this run follows, a worker with a newer number begins one."""
        if self.follows and number > self.number:
            if self.parts is not None:
                self._fail(self.parts, "the next one began")
                self.parts = None
            self._begin(number)
        parts = self.parts
        if self.follows and parts is not None and worker.rank not in parts.copied and worker.rank not in parts.writing:
            parts.asked.add(worker.rank)  # it began to train after the first one had copied
        return parts

    def trained(self, rank: int, ids: Iterable[int]) -> None:
        """Note the leases that are not in the checkpoint, before they are reported as done."""
        parts = self.parts
        if parts is None or rank in parts.asked:
            return
        for number in ids:
            holder, lease = self.leases.open.get(number, (None, None))
            if lease is not None and holder == rank:
                parts.later.append((lease.epoch, parts.reached.get(number, lease.lo), lease.hi))

    def disturbed(self, worker: WorkerEntry) -> None:
        """Fail the checkpoint: a message of this worker was lost, so that the contents of its copy are unknown."""
        if self.parts is not None:
            self.parts.drop(worker.rank)
            self.parts.failures.append(f"the connection to worker {worker.rank} had broken")

    def saved(self, number: int, text: str, error: str) -> None:
        """Note that the manifest is on disk, or could not be written."""
        self.saving = False
        self.outbox.record("checkpoint", f"checkpoint {number} failed: {error}; the one before stays" if error else text)

    def advance(self, now: float, started_s: float | None) -> None:
        """Begin a checkpoint if it is due, complete one if all parts are here. Only while the run trains."""
        if self.every is None or started_s is None:
            return
        if self.follows:
            self._conclude()
            return
        position = self._position(now - started_s)
        if self.last is None:
            self.last = 0.0 if not self.every.counted else self.every.floor(position)
        due = position >= self.last + self.every.amount
        if self.parts is not None:
            self._conclude()
        elif due and not self.saving:
            for worker in self._begin(self.number + 1):
                self.last = self.every.floor(position) if self.every.counted else position
                self.outbox.send(worker.connection, Checkpoint(self.number))
        if due and self.parts is not None and position >= self.last + self.every.amount:
            self._tell_late(self.parts)

    def _tell_late(self, parts: Parts) -> None:
        """Record, once, that the next checkpoint is due before this one is complete."""
        if not parts.late:
            parts.late = True
            slow = ", ".join(map(str, sorted(parts.asked | parts.writing)))
            self.outbox.record("checkpoint", f"checkpoint {parts.number} is late: it waits for worker {slow}")

    def _begin(self, number: int) -> list[WorkerEntry]:
        """Begin checkpoint ``number``, unless nobody trains; return those who are to copy their parts."""
        training = [worker for worker in self.members.with_state() if worker.state == "training"]
        if training:
            self.number, self.parts = number, Parts(number, {worker.rank for worker in training})
        return training

    def remind(self, worker: WorkerEntry) -> None:
        """Ask a worker again, which may have missed the first request."""
        if self.parts is not None and worker.rank in self.parts.asked and not self.follows:
            self.outbox.send(worker.connection, Checkpoint(self.parts.number))

    def _conclude(self) -> None:
        """Complete the checkpoint if all parts are written. Workers that are gone, or have no data any more, need not."""
        parts = self.parts
        if parts is None or self.saving:
            return
        for rank in [*parts.asked, *parts.writing]:
            worker = self.members.workers[rank]
            if not worker.live or (rank in parts.asked and worker.state != "training"):
                parts.drop(rank)
        if parts.asked or parts.writing:
            return
        self.parts = None
        if parts.failures or not parts.written:
            self._fail(parts, "; ".join(parts.failures) or "no worker was left to write it")
            return
        self.saving = True
        self.outbox.add(SaveCheckpoint(parts.number, self._manifest(parts)))

    def _fail(self, parts: Parts, why: str) -> None:
        self.outbox.record("checkpoint", f"checkpoint {parts.number} failed: {why[:2000]}; the one before stays")
        self.outbox.add(DropCheckpoint(parts.number))

    def _manifest(self, parts: Parts) -> Mapping[str, Any]:
        files = {}
        for rank, done in sorted(parts.written.items()):
            own, host = parts.copied[rank].island, self.members.workers[rank].hello.host
            filed = rank if own is None else own
            files[part_name(filed)] = PartFile(filed, done.nbytes, done.digest, host, done.pause_s)
        return {
            "number": parts.number,
            "files": files,
            "phase": parts.copied[min(parts.written)].phase,
            "steps": max(parts.copied[rank].steps for rank in parts.written),
            "passes": {str(epoch): each.length for epoch, each in sorted(self.leases.passes.items()) if each.begun},
            "undone": [list(span) for span in undone(self.leases, parts.reached, parts.later)],
            "rate": self.ledger.rate,
            "slack": self.ledger.slack,
        }

    def _position(self, trained_s: float) -> float:
        assert self.every is not None
        if not self.every.counted:
            return trained_s
        if self.every.unit == "steps":
            return float(max((worker.statistics.steps for worker in self.members.live()), default=0))
        return sum(each.done / each.length for each in self.leases.passes.values())


def continued(lengths: Mapping[int, int], undone: Iterable[Span]) -> Leases:
    """Return the passes of a run that goes on from a checkpoint: ``undone`` is the rest of those begun.

    >>> leases = continued({0: 10, 1: 10}, [(0, 2, 4), (1, 5, 10)])
    >>> leases.returned, leases.passes[1].dealt, leases.samples_undone
    ([(0, 2, 4)], 5, 7)
    """
    leases = Leases({epoch: Pass(length, length, length, begun=True) for epoch, length in lengths.items()})
    for epoch, lo, hi in joined(undone):
        current = leases.passes[epoch]
        current.done -= hi - lo
        if hi == current.length:
            current.dealt = lo  # so that a single worker goes on in the very same order
        else:
            leases.returned.append((epoch, lo, hi))
    leases.untouched = list(leases.returned)
    return leases


def undone(leases: Leases, reached: Mapping[int, int], later: Iterable[Span]) -> list[Span]:
    """Return the samples of the passes begun that a checkpoint does not contain: all that are not trained on now,
    from ``reached`` (by lease) if a worker's copy came that far, and those trained on ``later``."""
    spans = [*later, *leases.returned, *(span for spans in leases.reserved.values() for span in spans)]
    spans += [(epoch, each.dealt, each.end) for epoch, each in leases.passes.items()]
    spans += [(one.epoch, reached.get(number, one.lo), one.hi) for number, (_, one) in leases.open.items()]
    return joined(span for span in spans if leases.passes[span[0]].begun)
