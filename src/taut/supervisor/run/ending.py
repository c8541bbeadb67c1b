"""The end of a run: drain, digests, verdict, upload, saved. A state machine without I/O; cluster.py drives it.
docs/finish.md tells how the model is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from taut.core.messages import Digest, Drain, Finish, HandedOver, Saved, Upload, UploadSeen
from taut.errors import MalformedMessage
from taut.supervisor.metrics import END_TEXTS
from taut.supervisor.run import verdict as verdicts
from taut.supervisor.run.actions import ExpectModel, KeepStatistics, Outbox, Save, SaveIndex, TakeModel
from taut.supervisor.run.workers import WorkerEntry, WorkerTable
from taut.supervisor.view import ValidationScores


class Ending(Struct):
    """The end's state. Nothing happens before `begin`. Then every live worker owes a Digest; when all are here, the
    verdict is given, one worker writes the model (of an ensemble all do, in turn), and ``over`` is set: (path, error),
    one of them empty. ``policy``: one of ``FINISHES``; ``agrees``: the strategy leaves equal replicas."""

    members: WorkerTable
    outbox: Outbox
    policy: str = "any"
    agrees: bool = True
    resync: int = 0
    averages: bool = False  # replicas that must be equal have drifted apart by rounding
    reason: str | None = None  # of the drain; None: the run is not drained
    digests: dict[int, Digest] = {}
    buffers: dict[int, bytes] = {}
    averaged: bytes = b""
    verdict: verdicts.Verdict | None = None
    judged_s: float | None = None  # when the verdict was given
    order: list[int] = []  # in which workers are asked to write
    writer: WorkerEntry | None = None
    asked_s: float = 0.0  # when the writer was asked
    tried: list[int] = []
    upload: verdicts.ModelUpload | None = None
    saving: bool = False  # the file is complete and being written
    chosen_score: float | None = None
    consensus: float | None = None  # of the replicas as they were trained; None before the verdict
    kept: dict[int, tuple[Path, float | None]] = {}  # of an ensemble: files and scores
    over: tuple[str, str] | None = None

    @property
    def begun(self) -> bool:
        return self.reason is not None

    def distance(self) -> float:
        """Return the relative consensus distance of the live replicas; from the verdict on, that before averaging."""
        if self.consensus is not None:
            return self.consensus
        return verdicts.relative(worker.sketch for worker in self.members.live())

    def begin(self, reason: str) -> None:
        """Tell all workers with the state to drain; others are told when they get it."""
        if self.begun:
            return
        self.reason = reason
        self.outbox.record("drain", reason)
        self.outbox.add(ExpectModel())
        self.decide()
        for worker in self.members.with_state():
            self.tell(worker)

    def decide(self) -> None:
        """Decide whether replicas that must be equal take their mean: processors round differently."""
        self.averages = bool(self.resync) and len(self.members.roundings()) > 1

    def tell(self, worker: WorkerEntry) -> None:
        if self.reason is not None and not worker.drain_told:
            worker.drain_told = True
            self.outbox.send(worker.connection, Drain(self.reason, self.averages))

    def remind(self, worker: WorkerEntry) -> None:
        """Repeat what this worker was told after the verdict; let the writer go on where its upload was cut off."""
        if self.verdict is None or self.writer is None:
            return
        have = len(self.upload.data) if worker is self.writer and self.upload is not None else 0
        finish = Finish(identical=self.verdict.identical, writer=self.writer.rank, have=have)
        self.outbox.send(worker.connection, finish, self.averaged)
        if self.over is not None:
            self.outbox.send(worker.connection, Saved(*self.over))

    def take_digest(self, worker: WorkerEntry, digest: Digest, payloads: Sequence[bytes]) -> bool:
        """Note a drained worker's digest. Return False if it was not expected, or is malformed. After a broken connection
        a worker says it again."""
        if not worker.drain_told or len(payloads) > 1:
            return False
        if worker.rank in self.digests:
            return True
        if self.verdict is not None:
            return False
        self.digests[worker.rank] = digest
        self.buffers[worker.rank] = payloads[0] if payloads else b""
        worker.statistics, worker.state = digest.statistics, "drained"
        if digest.note:
            self.outbox.record("finish", f"worker {worker.rank}: {digest.note}")
        self.outbox.add(KeepStatistics(worker.rank, digest.statistics, final=True))
        return True

    def check(self, now: float) -> None:
        """Give the verdict once every live worker's digest is here."""
        live = self.members.live()
        if not self.begun or self.verdict is not None or not live:
            return
        if any(worker.state != "drained" for worker in live):
            return
        self.judged_s = now
        ranks = [worker.rank for worker in live]
        self.digests = {rank: self.digests[rank] for rank in ranks}
        self.verdict, self.consensus = verdicts.judge(self.digests), verdicts.spread(self.digests)
        self._average_buffers()
        for note in self.verdict.notes:
            self.outbox.record("verdict", note)
        if self.averages:
            self.outbox.record(
                "verdict", f"processors round differently: the mean was taken of {self.consensus:.2g} apart"
            )
        if self.verdict.identical:
            said = f"{len(ranks)} replicas are identical" if len(ranks) > 1 else "there is one replica"
            self.outbox.record("verdict", f"{said} ({self.verdict.digest[:12]})")
        for kind, text in END_TEXTS:
            told = text(worker.statistics for worker in live)
            if told:
                self.outbox.record(kind, told)
        self._choose()
        for worker in live:
            worker.state = "finished"
        self._ask(live, now)

    def _average_buffers(self) -> None:
        """Average the buffers if all have one model: batch-norm statistics belong to the weights they were taken with."""
        if self.policy == "average" or (self.policy == "any" and self.agrees):
            samples = {rank: digest.statistics.samples for rank, digest in self.digests.items()}
            parts = {rank: (samples[rank], self.buffers[rank]) for rank in self.digests}
            self.averaged, left_out = verdicts.average_buffers(parts)
            for rank in left_out:
                self.outbox.record("buffers", f"worker {rank}'s buffers were left out of the average: they do not fit")
        self.buffers.clear()

    def _choose(self) -> None:
        self.order = verdicts.by_island(self.digests)
        scores = {rank: self.digests[rank].score for rank in self.order}
        lower = any(digest.lower_is_better for digest in self.digests.values())
        scored = any(score is not None for score in scores.values())
        if scored:
            self.outbox.record("validation", verdicts.scores_text(scores))
        if self.policy == "best":
            self.order = verdicts.by_score(scores, lower)
            why = "has the best score" if scored else "is taken: there are no scores to choose by"
            self.outbox.record("finish", f"worker {self.order[0]}'s replica {why}")

    @property
    def validation(self) -> ValidationScores | None:
        """Return the scores; None before the verdict, and if the script has no validation function."""
        if self.verdict is None or all(digest.score is None for digest in self.digests.values()):
            return None
        lower = any(digest.lower_is_better for digest in self.digests.values())
        replicas = {rank: digest.score for rank, digest in sorted(self.digests.items())}
        return ValidationScores(replicas, self.chosen_score, "lower" if lower else "higher")

    def take_upload(self, worker: WorkerEntry, chunk: Upload, payloads: Sequence[bytes], now: float) -> bool:
        """Add a part of the model. Return False unless it is from the writer. If it is broken, another is asked."""
        if worker is not self.writer or self.upload is None or self.over is not None:
            return False
        have = len(self.upload.data)
        if chunk.offset > have:
            return True  # a broken connection lost what was before it: the writer is reminded, and goes on from there
        if chunk.offset < have and len(payloads) == 1:
            # Reminded, the writer began again where the upload was then, with parts still under way.
            payloads, chunk = [payloads[0][have - chunk.offset :]], msgspec.structs.replace(chunk, offset=have)
            if not payloads[0]:
                self.outbox.send(worker.connection, UploadSeen(have))
                return True
        try:
            data = self.upload.add(chunk, payloads)
        except MalformedMessage as error:
            self._refuse(worker, str(error), now)
            return True
        seen = chunk.total if data is not None else len(self.upload.data)
        self.outbox.send(worker.connection, UploadSeen(seen))
        if data is not None:
            self.outbox.add(Save(data, self._complete(worker, chunk, now)))
        return True

    def take_file(self, worker: WorkerEntry, message: HandedOver, now: float) -> bool:
        """Take the model that the writer put into a file. Return False unless it is from the writer."""
        if worker is not self.writer or self.upload is None or self.over is not None:
            return False
        if not 0 < message.total <= self.upload.limit_nbytes:
            self._refuse(worker, f"a model of {message.total} bytes: expected up to {self.upload.limit_nbytes}", now)
        else:
            name = self._complete(worker, message, now)
            self.outbox.add(TakeModel(worker.rank, message.total, message.checksum, name))
        return True

    def _complete(self, worker: WorkerEntry, last: Upload | HandedOver, now: float) -> str:
        """Note that the model is here, and return the name to save it under."""
        self.upload, self.saving, self.chosen_score = None, True, last.score
        took_s = now - self.asked_s
        self.outbox.record("model", f"worker {worker.rank} delivered {last.total / 1e6:.1f} MB in {took_s:.2f} s")
        if last.note:
            self.outbox.record("finish", f"worker {worker.rank}: {last.note}")
        return f"model-{worker.rank}" if self.policy == "ensemble" else "model"

    def _refuse(self, worker: WorkerEntry, why: str, now: float) -> None:
        self.outbox.send(worker.connection, Saved(path="", error=why))
        self.outbox.record("upload", f"worker {worker.rank}: {why}")
        self.lost(worker, now)

    def saved(self, path: str, error: str, now: float) -> None:
        """Note that the model was written, or could not be."""
        if self.policy == "ensemble" and self.saving:
            self._kept(path, error, now)
            return
        for worker in self.members.live():
            self.outbox.send(worker.connection, Saved(path, error))
        if self.writer is not None and self.writer.live:
            self.writer.state = "finished"
        self.over = (path, error)

    def _kept(self, path: str, error: str, now: float) -> None:
        """Note that one model of the ensemble is on disk, or could not be written, and ask for the next."""
        assert self.writer is not None
        if error:
            self.outbox.record("writer", f"worker {self.writer.rank}'s model: {error}")
        else:
            self.kept[self.writer.rank] = (Path(path), self.chosen_score)
        self.writer.state, self.saving, self.chosen_score = "finished", False, None
        self._ask([], now)

    def lost(self, worker: WorkerEntry, now: float) -> None:
        """Ask another writer if this worker, which is gone, was to write the model."""
        if worker is not self.writer or self.saving or self.over is not None:
            return
        self.outbox.record("writer", f"worker {worker.rank} did not deliver the model")
        self._ask([], now)

    def _ask(self, told: Sequence[WorkerEntry], now: float) -> None:
        """Choose the next writer and tell it, or at first all workers (``told``)."""
        assert self.verdict is not None
        able = [self.members.workers[rank] for rank in self.order if rank not in self.tried]
        self.writer = next((one for one in able if one.live and not one.ended), None)
        if self.writer is None and self.kept:
            models = [{"rank": rank, "file": path.name, "score": score} for rank, (path, score) in self.kept.items()]
            self.outbox.add(SaveIndex({"finish": "ensemble", "models": models}))
            return
        if self.writer is None:
            self.over = ("", "no worker was left to write the model")
            return
        self.tried.append(self.writer.rank)
        self.asked_s = now
        self.writer.state = "drained"  # its silence is judged again, from now on
        self.writer.detector.seen(now)
        self.upload = verdicts.ModelUpload(verdicts.upload_limit_nbytes(self.members.model or []))
        finish = Finish(identical=self.verdict.identical, writer=self.writer.rank)
        for worker in told or [self.writer]:
            self.outbox.send(worker.connection, finish, self.averaged)
