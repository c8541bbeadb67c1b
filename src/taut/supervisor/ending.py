"""The end of a run: drain, digests, verdict, upload, saved. A state machine without I/O; cluster.py drives
it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from taut.core.messages import Digest, Drain, Finish, Saved, Upload
from taut.errors import MalformedMessage
from taut.supervisor.actions import Measured, Outbox, Save
from taut.supervisor.finish import ModelUpload, Verdict, average_buffers, judge, upload_limit_nbytes
from taut.supervisor.membership import Membership, Worker


@dataclass(slots=True)
class Ending:
    """Nothing happens before `begin`. Afterwards every live worker owes a Digest; when all are in, the
    verdict is given, one worker writes the model, and ``over`` says so: (path, error), one of them empty."""

    members: Membership
    outbox: Outbox
    reason: str | None = None  # why the run is drained; None: it is not
    digests: dict[int, Digest] = field(default_factory=dict)
    buffers: dict[int, bytes] = field(default_factory=dict)
    averaged: bytes = b""
    verdict: Verdict | None = None
    judged_s: float | None = None  # when the verdict was given
    writer: Worker | None = None
    tried: list[int] = field(default_factory=list)
    upload: ModelUpload | None = None
    saving: bool = False  # the file is complete and being written
    over: tuple[str, str] | None = None

    @property
    def begun(self) -> bool:
        return self.reason is not None

    def begin(self, reason: str) -> None:
        """Tell everybody who has the state to drain; who gets it later is told then."""
        if self.begun:
            return
        self.reason = reason
        self.outbox.record("drain", reason)
        for worker in self.members.with_state():
            self.tell(worker)

    def tell(self, worker: Worker) -> None:
        if self.reason is not None and not worker.drain_told:
            worker.drain_told = True
            self.outbox.send(worker.connection, Drain(self.reason))

    def said(self, worker: Worker, message: Digest | Upload, payloads: Sequence[bytes], now: float) -> bool:
        """A worker's part in the end. False: it has none just now, or not in this form."""
        if isinstance(message, Digest):
            return self.take_digest(worker, message, payloads)
        return self.take_upload(worker, message, payloads, now)

    def take_digest(self, worker: Worker, digest: Digest, payloads: Sequence[bytes]) -> bool:
        """A worker is drained. False: not now, or not in this form."""
        if not worker.drain_told or self.verdict is not None or worker.rank in self.digests or len(payloads) > 1:
            return False
        self.digests[worker.rank] = digest
        self.buffers[worker.rank] = payloads[0] if payloads else b""
        worker.statistics, worker.state = digest.statistics, "drained"
        self.outbox.add(Measured(worker.rank, digest.statistics, final=True))
        return True

    def check(self, now: float) -> None:
        """Give the verdict once every live worker's digest is there."""
        live = self.members.live()
        if not self.begun or self.verdict is not None or not live:
            return
        if any(worker.state != "drained" for worker in live):
            return
        self.judged_s = now
        ranks = [worker.rank for worker in live]
        self.verdict = judge({rank: self.digests[rank] for rank in ranks})
        parts = {rank: (self.digests[rank].statistics.samples, self.buffers[rank]) for rank in ranks}
        self.averaged, left_out = average_buffers(parts)
        self.buffers.clear()
        for note in self.verdict.notes:
            self.outbox.record("verdict", note)
        if self.verdict.identical:
            self.outbox.record("verdict", f"{len(ranks)} replicas are identical ({self.verdict.digest[:12]})")
        for rank in left_out:
            self.outbox.record("buffers", f"worker {rank}'s buffers were left out of the average: they do not fit")
        for worker in live:
            worker.state = "finished"
        self._ask(live, now)

    def take_upload(self, worker: Worker, chunk: Upload, payloads: Sequence[bytes], now: float) -> bool:
        """Part of the model. False: it is not from the writer. A broken upload is given up and another
        writer asked."""
        if worker is not self.writer or self.upload is None or self.over is not None:
            return False
        try:
            data = self.upload.add(chunk, payloads)
        except MalformedMessage as error:
            self.outbox.send(worker.connection, Saved(path="", error=str(error)))
            self.outbox.record("upload", f"worker {worker.rank}: {error}")
            self.lost(worker, now)
            return True
        if data is not None:
            self.upload, self.saving = None, True
            self.outbox.add(Save(data))
        return True

    def saved(self, path: str, error: str) -> None:
        """The shell wrote the model, or could not."""
        for worker in self.members.live():
            self.outbox.send(worker.connection, Saved(path, error))
        if self.writer is not None and self.writer.live:
            self.writer.state = "finished"
        self.over = (path, error)

    def lost(self, worker: Worker, now: float) -> None:
        """This worker is gone. If it was to write the model, another one is asked: perhaps one is still
        there."""
        if worker is not self.writer or self.saving or self.over is not None:
            return
        self.outbox.record("writer", f"worker {worker.rank} did not deliver the model")
        self._ask([], now)

    def _ask(self, everybody: Sequence[Worker], now: float) -> None:
        """Choose the next writer and tell it, and at the first time everybody else."""
        assert self.verdict is not None
        able = [one for one in self.members.live() if one.rank not in self.tried and not one.ended]
        self.writer = able[0] if able else None
        if self.writer is None:
            self.over = ("", "no worker was left to write the model")
            return
        self.tried.append(self.writer.rank)
        self.writer.state = "drained"  # its silence is judged again, from now on
        self.writer.detector.seen(now)
        self.upload = ModelUpload(upload_limit_nbytes(self.members.model or []))
        finish = Finish(identical=self.verdict.identical, writer=self.writer.rank)
        for worker in everybody or [self.writer]:
            self.outbox.send(worker.connection, finish, self.averaged)
