"""When a checkpoint is due, whose parts are in, and which samples it does not contain. Pure; cluster.py drives it.

Every worker that trains is asked for its part. From the moment at which it says that its copy is made, whatever it
reports as trained is not in the checkpoint; connections keep their order, so all that it reported before is. The
manifest is written when every part is on disk; without it there is no checkpoint, so a kill at any instant leaves the
last good one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from taut.core.checkpoint_names import part_name
from taut.core.messages import Checkpoint, CheckpointBegun, CheckpointDone
from taut.core.sample_ranges import Span
from taut.specs import Interval
from taut.supervisor.checkpoints.lease_cut import continued, undone
from taut.supervisor.data.leases import Leases
from taut.supervisor.run.actions import DropCheckpoint, Outbox, SaveCheckpoint
from taut.supervisor.run.workers import Membership, Worker


@dataclass(slots=True)
class Parts:
    """A checkpoint on its way. ``asked``: who has not begun; ``writing``: who has begun, and is not done."""

    number: int
    asked: set[int]
    writing: set[int] = field(default_factory=set)
    written: dict[int, CheckpointDone] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)  # lease -> first place that is not trained on in the copy
    later: list[Span] = field(default_factory=list)  # trained on after the copies were made
    failures: list[str] = field(default_factory=list)
    copied: dict[int, CheckpointBegun] = field(default_factory=dict)  # what each worker said of its copy
    late: bool = False  # it takes so long that the next one is due; this was told


@dataclass(slots=True)
class Checkpointing:
    """``every``: None for none at all. ``number``: of the last one that there was. ``last``: where it was taken, in steps
    or epochs or, by the clock, when (None: at the start)."""

    every: Interval | None
    members: Membership
    leases: Leases
    outbox: Outbox
    number: int = 0
    last: float | None = None
    parts: Parts | None = None
    saving: bool = False

    def resume(self, steps: int, passes: Mapping[int, int], undone: Iterable[Span]) -> None:
        """The run goes on from a checkpoint: nothing was dealt yet in this life of it."""
        left = continued(passes, undone)
        self.leases.passes.update(left.passes)
        self.leases.returned.extend(left.returned)
        self.leases.untouched.extend(left.untouched)
        if self.every is not None and self.every.unit == "steps":
            self.last = float(steps)

    # ------------------------------------------------------------------------------------------ what happens

    def said(self, worker: Worker, message: CheckpointBegun | CheckpointDone) -> bool:
        """A worker speaks of its part. False: nobody asked for it."""
        return self.begun(worker, message) if isinstance(message, CheckpointBegun) else self.done(worker, message)

    def begun(self, worker: Worker, message: CheckpointBegun) -> bool:
        """A worker has copied its part. False: nobody asked for it."""
        parts = self.parts
        if parts is None or message.number != parts.number or worker.rank not in parts.asked:
            return False
        parts.asked.discard(worker.rank)
        parts.writing.add(worker.rank)
        parts.copied[worker.rank] = message
        for lease in message.holds:
            holder, mine = self.leases.open.get(lease.lease, (None, None))
            if mine is not None and holder == worker.rank and mine.lo <= lease.lo <= mine.hi:
                parts.reached[lease.lease] = lease.lo
        return True

    def done(self, worker: Worker, message: CheckpointDone) -> bool:
        """A worker's part is on disk, or cannot be. False: nobody asked for it."""
        parts = self.parts
        if parts is None or message.number != parts.number:
            return False
        if worker.rank not in (parts.asked | parts.writing if message.error else parts.writing):
            return False
        parts.asked.discard(worker.rank)
        parts.writing.discard(worker.rank)
        if message.error:
            parts.failures.append(f"worker {worker.rank}: {message.error}")
        else:
            parts.written[worker.rank] = message
        return True

    def trained(self, rank: int, ids: Iterable[int]) -> None:
        """Leases are about to be reported as done: those that are not in the checkpoint are noted."""
        parts = self.parts
        if parts is None or rank in parts.asked:
            return
        for number in ids:
            holder, lease = self.leases.open.get(number, (None, None))
            if lease is not None and holder == rank:
                parts.later.append((lease.epoch, parts.reached.get(number, lease.lo), lease.hi))

    def disturbed(self, worker: Worker) -> None:
        """Something that this worker said was lost: nobody knows what its copy contains. This checkpoint will not be."""
        if self.parts is not None:
            self.parts.asked.discard(worker.rank)
            self.parts.writing.discard(worker.rank)
            self.parts.failures.append(f"the connection to worker {worker.rank} had broken")

    def saved(self, number: int, text: str, error: str) -> None:
        """The manifest is on disk, or could not be written."""
        self.saving = False
        self.outbox.record("checkpoint", f"checkpoint {number} failed: {error}; the one before stays" if error else text)

    # ----------------------------------------------------------------------------------------- what follows

    def settle(self, now: float, started_s: float | None) -> None:
        """Begin one if it is due, end one if all parts are in. Training has begun, and is not over."""
        if self.every is None or started_s is None:
            return
        position = self._position(now - started_s)
        if self.last is None:
            self.last = 0.0 if not self.every.counted else self.every.floor(position)
        due = position >= self.last + self.every.amount
        if self.parts is not None:
            self._conclude()
        elif due and not self.saving:
            self._begin(position)
        if due and self.parts is not None and position >= self.last + self.every.amount:
            self._tell_late(self.parts)

    def _tell_late(self, parts: Parts) -> None:
        """The next one is due before this one is there."""
        if not parts.late:
            parts.late = True
            slow = ", ".join(map(str, sorted(parts.asked | parts.writing)))
            self.outbox.record("checkpoint", f"checkpoint {parts.number} is late: it waits for worker {slow}")

    def _begin(self, position: float) -> None:
        assert self.every is not None
        training = [worker for worker in self.members.with_state() if worker.state == "training"]
        if not training:
            return
        self.number += 1
        self.last = self.every.floor(position) if self.every.counted else position
        self.parts = Parts(self.number, {worker.rank for worker in training})
        for worker in training:
            self.outbox.send(worker.connection, Checkpoint(self.number))

    def remind(self, worker: Worker) -> None:
        """It may have missed that it was asked."""
        if self.parts is not None and worker.rank in self.parts.asked:
            self.outbox.send(worker.connection, Checkpoint(self.parts.number))

    def _conclude(self) -> None:
        """Who is gone, or has no data any more, is not waited for. All others must have written their part."""
        parts = self.parts
        assert parts is not None
        for rank in [*parts.asked, *parts.writing]:
            worker = self.members.workers[rank]
            if not worker.live or (rank in parts.asked and worker.state != "training"):
                parts.asked.discard(rank)
                parts.writing.discard(rank)
        if parts.asked or parts.writing:
            return
        self.parts = None
        if parts.failures or not parts.written:
            why = "; ".join(parts.failures) or "nobody was left to write it"
            self.outbox.record("checkpoint", f"checkpoint {parts.number} failed: {why[:2000]}; the one before stays")
            self.outbox.add(DropCheckpoint(parts.number))
            return
        self.saving = True
        self.outbox.add(SaveCheckpoint(parts.number, self._manifest(parts)))

    def _manifest(self, parts: Parts) -> Mapping[str, Any]:
        """What the shell cannot know."""
        return {
            "number": parts.number,
            "files": {
                part_name(rank): {
                    "rank": rank,
                    "nbytes": done.nbytes,
                    "blake2b": done.digest,
                    "host": self.members.workers[rank].hello.host,
                    "pause_s": done.pause_s,
                }
                for rank, done in sorted(parts.written.items())
            },
            "phase": parts.copied[min(parts.written)].phase,
            "steps": max(parts.copied[rank].steps for rank in parts.written),
            "passes": {str(epoch): each.length for epoch, each in sorted(self.leases.passes.items()) if each.begun},
            "undone": [list(span) for span in undone(self.leases, parts.reached, parts.later)],
        }

    def _position(self, trained_s: float) -> float:
        """Where the run is, in units of the interval."""
        assert self.every is not None
        if not self.every.counted:
            return trained_s
        if self.every.unit == "steps":
            return float(max((worker.statistics.steps for worker in self.members.live()), default=0))
        return sum(each.done / each.length for each in self.leases.passes.values())
