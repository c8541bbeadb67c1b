"""The end of a run: drain, digests, verdict, upload, saved. A state machine without I/O; cluster.py drives
it. How the model is chosen is told in docs/finish.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from taut.core.messages import Digest, Drain, Finish, Saved, Upload
from taut.errors import MalformedMessage
from taut.supervisor.run.actions import Measured, Outbox, Save, SaveIndex
from taut.supervisor.run.replica_distance import relative
from taut.supervisor.run.verdict import (
    ModelUpload,
    Verdict,
    average_buffers,
    by_score,
    judge,
    scores_text,
    spread,
    upload_limit_nbytes,
)
from taut.supervisor.run.workers import Membership, Worker
from taut.supervisor.view import Validation


@dataclass(slots=True)
class Ending:
    """Nothing happens before `begin`. Afterwards every live worker owes a Digest; when all are in, the
    verdict is given, one worker writes the model (of an ensemble all do, in turn), and ``over`` says so: (path,
    error), one of them empty. ``policy``: average, best, any or ensemble; ``agrees``: the strategy leaves equal
    replicas."""

    members: Membership
    outbox: Outbox
    policy: str = "any"
    agrees: bool = True
    reason: str | None = None  # why the run is drained; None: it is not
    digests: dict[int, Digest] = field(default_factory=dict)
    buffers: dict[int, bytes] = field(default_factory=dict)
    averaged: bytes = b""
    verdict: Verdict | None = None
    judged_s: float | None = None  # when the verdict was given
    order: list[int] = field(default_factory=list)  # in which workers are asked to write
    writer: Worker | None = None
    tried: list[int] = field(default_factory=list)
    upload: ModelUpload | None = None
    asked_again: bool = False  # something of the upload was lost: it begins anew
    saving: bool = False  # the file is complete and being written
    chosen_score: float | None = None
    consensus: float | None = None  # of the replicas as they were trained; None before the verdict
    kept: dict[int, tuple[Path, float | None]] = field(default_factory=dict)  # of an ensemble: files and scores
    over: tuple[str, str] | None = None

    @property
    def begun(self) -> bool:
        return self.reason is not None

    def distance(self) -> float:
        """Consensus distance of the live replicas, relative; from the verdict on, of what was trained."""
        if self.consensus is not None:
            return self.consensus
        return relative(worker.sketch for worker in self.members.live())

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

    def remind(self, worker: Worker) -> None:
        """What this worker was told after the verdict may have been lost, or what the writer uploaded."""
        if self.verdict is None or self.writer is None:
            return
        if worker is self.writer and self.upload is not None:
            self.upload, self.asked_again = ModelUpload(upload_limit_nbytes(self.members.model or [])), True
        finish = Finish(identical=self.verdict.identical, writer=self.writer.rank)
        self.outbox.send(worker.connection, finish, self.averaged)
        if self.over is not None:
            self.outbox.send(worker.connection, Saved(*self.over))

    def take_digest(self, worker: Worker, digest: Digest, payloads: Sequence[bytes]) -> bool:
        """A worker is drained. False: not now, or not in this form."""
        if not worker.drain_told or self.verdict is not None or worker.rank in self.digests or len(payloads) > 1:
            return False
        self.digests[worker.rank] = digest
        self.buffers[worker.rank] = payloads[0] if payloads else b""
        worker.statistics, worker.state = digest.statistics, "drained"
        if digest.note:
            self.outbox.record("finish", f"worker {worker.rank}: {digest.note}")
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
        self.digests = {rank: self.digests[rank] for rank in ranks}
        self.verdict, self.consensus = judge(self.digests), spread(self.digests)
        self._average_buffers()
        for note in self.verdict.notes:
            self.outbox.record("verdict", note)
        if self.verdict.identical:
            said = f"{len(ranks)} replicas are identical" if len(ranks) > 1 else "there is one replica"
            self.outbox.record("verdict", f"{said} ({self.verdict.digest[:12]})")
        self._choose()
        for worker in live:
            worker.state = "finished"
        self._ask(live, now)

    def _average_buffers(self) -> None:
        """Batch-norm statistics belong to the weights they were taken with: only one model for all gets their mean."""
        if self.policy == "average" or (self.policy == "any" and self.agrees):
            samples = {rank: digest.statistics.samples for rank, digest in self.digests.items()}
            parts = {rank: (samples[rank], self.buffers[rank]) for rank in self.digests}
            self.averaged, left_out = average_buffers(parts)
            for rank in left_out:
                self.outbox.record("buffers", f"worker {rank}'s buffers were left out of the average: they do not fit")
        self.buffers.clear()

    def _choose(self) -> None:
        """Who writes the model, the next one in case it dies, and so on."""
        scores = {rank: digest.score for rank, digest in sorted(self.digests.items())}
        lower = any(digest.lower_is_better for digest in self.digests.values())
        self.order = sorted(scores)
        scored = any(score is not None for score in scores.values())
        if scored:
            self.outbox.record("validation", scores_text(scores))
        if self.policy == "best":
            self.order = by_score(scores, lower)
            why = "has the best score" if scored else "is taken: there are no scores to choose by"
            self.outbox.record("finish", f"worker {self.order[0]}'s replica {why}")

    @property
    def validation(self) -> Validation | None:
        """None before the verdict, and where the script has no validation function."""
        if self.verdict is None or all(digest.score is None for digest in self.digests.values()):
            return None
        lower = any(digest.lower_is_better for digest in self.digests.values())
        replicas = {rank: digest.score for rank, digest in sorted(self.digests.items())}
        return Validation(replicas, self.chosen_score, "lower" if lower else "higher")

    def take_upload(self, worker: Worker, chunk: Upload, payloads: Sequence[bytes], now: float) -> bool:
        """Part of the model. False: it is not from the writer. A broken upload is given up and another
        writer asked."""
        if worker is not self.writer or self.upload is None or self.over is not None:
            return False
        if self.asked_again and self.upload.total is None and chunk.offset:
            return True  # the rest of an upload whose beginning was lost: it begins again
        try:
            data = self.upload.add(chunk, payloads)
        except MalformedMessage as error:
            self.outbox.send(worker.connection, Saved(path="", error=str(error)))
            self.outbox.record("upload", f"worker {worker.rank}: {error}")
            self.lost(worker, now)
            return True
        if data is not None:
            self.upload, self.saving, self.chosen_score = None, True, chunk.score
            if chunk.note:
                self.outbox.record("finish", f"worker {worker.rank}: {chunk.note}")
            self.outbox.add(Save(data, f"model-{worker.rank}" if self.policy == "ensemble" else "model"))
        return True

    def saved(self, path: str, error: str, now: float) -> None:
        """The shell wrote the model, or could not."""
        if self.policy == "ensemble" and self.saving:
            self._kept(path, error, now)
            return
        for worker in self.members.live():
            self.outbox.send(worker.connection, Saved(path, error))
        if self.writer is not None and self.writer.live:
            self.writer.state = "finished"
        self.over = (path, error)

    def _kept(self, path: str, error: str, now: float) -> None:
        """One model of the ensemble is on disk, or could not be written; the next one, please."""
        assert self.writer is not None
        if error:
            self.outbox.record("writer", f"worker {self.writer.rank}'s model: {error}")
        else:
            self.kept[self.writer.rank] = (Path(path), self.chosen_score)
        self.writer.state, self.saving, self.chosen_score = "finished", False, None
        self._ask([], now)

    def _index(self) -> None:
        """All that could be had of the ensemble is on disk: write down what there is."""
        models = [{"rank": rank, "file": path.name, "score": score} for rank, (path, score) in self.kept.items()]
        self.outbox.add(SaveIndex({"finish": "ensemble", "models": models}))

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
        able = [self.members.workers[rank] for rank in self.order if rank not in self.tried]
        self.writer = next((one for one in able if one.live and not one.ended), None)
        if self.writer is None and self.kept:
            self._index()
            return
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
