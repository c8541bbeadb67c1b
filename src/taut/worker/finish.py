"""The end of a worker's run, after the drain: score the replica, become one model, agree on it, hand it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from taut.codecs import sketch
from taut.core.drift import DRIFT
from taut.core.files import AtomicFile
from taut.core.handover import SETTING, is_here, put
from taut.core.messages import UPLOAD_NBYTES, Digest, HandedOver, Statistics, Upload
from taut.core.pacing import Window
from taut.errors import MalformedMessage, Misuse, ReplicasDiffer, RunFailed
from taut.strategies.allreduce.final_average import FinalAverage
from taut.strategies.api import Draining, Finished, Local, MembersChanged, MethodEvent, Tell
from taut.strategies.compatibility import default_finish
from taut.strategies.registry import Choice
from taut.topologies.shapes.basic import Complete
from taut.transport.endpoint import is_own
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.run_status import RunStatus
from taut.worker.exchange.base import Exchange
from taut.worker.model.growth import NewValues
from taut.worker.model.replica import Replica
from taut.worker.model.tensor_file import file_views
from taut.worker.model.vector_views import Weights
from taut.worker.optimizer.moments import Moments
from taut.worker.validation import Validation

if TYPE_CHECKING:
    from taut.worker.joining.island_member import IslandMember


class Averaged(Local):
    """What is averaged: the weights, and before a phase in which all must take the same steps the moments, too."""

    def __init__(self, replica: Replica, moments: Moments | None = None) -> None:
        self._weights, self._moments = Weights(replica), moments
        self.fetch()

    def fetch(self) -> None:
        self._weights.fetch()
        self.x = self._weights.x
        if self._moments is not None:
            self.x = np.concatenate([self.x, self._moments.gather()])

    def put_back(self) -> None:
        if self._moments is not None:
            size = len(self._weights.x)
            self._weights.x[:] = self.x[:size]
            self._moments.scatter(self.x[size:])
        self._weights.put_back()


class FinalAverager:
    """Drives a ``FinalAverage`` on ``comm``: the replica takes the mean of all. Belongs to the training thread. It must
    be asked to ``catch_up`` until everybody is through: somebody may be behind."""

    def __init__(self, local: Averaged | NewValues, comm: CommThread) -> None:
        self.comm, self.phase_protocol = comm, comm.phase_protocol
        self.local = local
        self.method = FinalAverage()
        self.finished = False
        membership = comm.dispatcher.membership(Complete(), self.phase_protocol.phase)
        self._version = membership.version
        self.state = self.method.start(membership, local)

    def run(self, idle: Callable[[], None]) -> None:
        """Average until this replica is the mean."""

        def all_idle() -> None:
            idle()
            self.catch_up()

        self.local.fetch()
        self._tell(Draining())
        while not self.finished:
            self.comm.wait(lambda _: self.finished or bool(self.phase_protocol.final_mail), all_idle)
        self.local.put_back()

    def check_drift(self) -> None:
        """Raise ``ReplicasDiffer`` where this replica was further from the mean than rounding explains."""
        distance = self.state.distance
        if distance is not None and distance > DRIFT:
            raise ReplicasDiffer(
                f"this replica was {distance:.2g} of the norm away from the mean of all, which rounding does not explain "
                f"(expected at most {DRIFT:g})"
            )

    def catch_up(self) -> None:
        roster = self.comm.status.roster
        if roster is not None and roster.stamp != self._version:
            self._version = roster.stamp
            self._tell(MembersChanged(self.comm.dispatcher.membership(Complete(), self.phase_protocol.phase)))
        while self.phase_protocol.final_mail:
            item = self.phase_protocol.take_final_mail()
            try:
                self._tell(item)
            except MalformedMessage as error:
                self.comm.rejections.add(item.sender, str(error))

    def _tell(self, event: MethodEvent) -> None:
        for action in self.method.on(self.state, event, self.comm.clock.now()):
            match action:
                case Tell():
                    self.comm.post(action, self.phase_protocol)
                case Finished():
                    self.finished = True


@dataclass
class Finishing:
    """``averages``: the replicas may differ, and their average is wanted. ``score``: of the replica as it was trained.
    ``member``: this process in its island, whose processes score and recalibrate the model together."""

    comm: CommThread
    replica: Replica
    exchange: Exchange
    validation: Validation
    statistics: Callable[[], Statistics]
    averages: bool
    folder: Path | None = None  # that the supervisor has for the model, if it is on this machine
    member: IslandMember | None = None
    score: float | None = None
    model: tuple[list[memoryview], float | None, str] | None = None  # as it is handed in, with its score and a note
    averager: FinalAverager | None = None
    window: Window = field(default_factory=lambda: Window(UPLOAD_NBYTES))  # of what is handed in over the network

    def run(self) -> None:
        """Score, average and hand in the drained replica, and wait until the model is saved."""
        comm, params = self.comm, self.replica.params
        digest = self._average(self._trained())
        comm.say(digest, [params.buffer_bytes()])
        comm.wait(lambda status: status.finish is not None, self._idle)
        assert comm.status.finish is not None
        finish, buffers = comm.status.finish
        changed = self.averages
        if buffers and buffers != params.buffer_bytes():
            params.load_buffers(buffers)
            changed = True
        if self.member is not None and self.validation.given:  # now: whose part is handed in is chosen for each part
            changed = self.member.agree(float(changed), self._idle) > 0.0
            self.member.share()
            self.model = self._made(changed)
        self._hand_in(changed)
        if digest.exact and not finish.identical:
            raise ReplicasDiffer(_why_differ(comm.rejections.counts))
        self.validation.raise_failure()

    def _trained(self) -> Digest:
        statistics = self.statistics()  # what follows is no training: its time does not count as such
        exact = self.exchange.exact
        self.replica.retire()
        island = None
        if self.member is not None:
            self.member.agree(0.0, self._idle)
            island = self.member.file_under(self.comm.rank)
            self.member.share()
        self.score = self._score()
        return Digest(
            self.replica.digest(),
            exact,
            self.exchange.have(),
            statistics,
            score=self.score,
            lower_is_better=self.validation.better == "lower",
            sketch=sketch(self.replica.params.vector),
            note=self.validation.note(),
            island=island,
        )

    def _score(self) -> float | None:
        score = self.validation.score(self.replica.params.model)
        return (
            self.member.same_score(score) if self.member is not None and self.validation.validate is not None else score
        )

    def _average(self, trained: Digest) -> Digest:
        if not self.averages:
            return trained
        self.averager = FinalAverager(Averaged(self.replica), self.comm)
        self.averager.run(self.exchange.idle)
        self.replica.params.masters.refresh()
        state = self.averager.state
        note = "its weights are not finite, and were left out of the average" if state.left_out else trained.note
        return msgspec.structs.replace(
            trained,
            digest=self.replica.digest(),
            exact=state.agreed,
            statistics=msgspec.structs.replace(trained.statistics, bytes_sent=self.comm.dispatcher.bytes_sent),
            distance=-1.0 if state.distance is None else state.distance,
            note=note,
        )

    def _idle(self) -> None:
        self.exchange.idle()
        if self.averager is not None:
            self.averager.catch_up()

    def _hand_in(self, changed: bool) -> None:
        """Wait until the model is saved; upload it whenever asked for: a supervisor that came back asks again."""
        comm = self.comm
        answered: object = None

        def asked(status: RunStatus) -> bool:
            return status.finish is not None and status.finish[0].writer == comm.rank and status.finish is not answered

        while True:
            comm.wait(lambda status: status.saved is not None or asked(status), self._idle)
            if comm.status.saved is not None:
                break
            answered = comm.status.finish
            self._upload(changed)
        saved, finish = comm.status.saved, comm.status.finish
        if saved.error and finish is not None and finish[0].writer == comm.rank:
            raise RunFailed(f"the supervisor could not save the model: {saved.error}")

    def _made(self, changed: bool) -> tuple[list[memoryview], float | None, str]:
        """Return the model that came out, recalibrated and scored. ``changed``: since it was scored."""
        failures = len(self.validation.failures)
        changed |= self.validation.recalibrated(self.replica.params.model, self.member)
        score = self._score() if changed and not failures else self.score
        note = self.validation.note() if len(self.validation.failures) > failures else ""
        return file_views(self.replica.params.state_dict()), score, note

    def _upload(self, changed: bool) -> None:
        if self.model is None:
            self.model = self._made(changed)
        if not self._put(*self.model):
            self._send_paced(memoryview(b"".join(self.model[0])), *self.model[1:])

    def _put(self, views: list[memoryview], score: float | None, note: str) -> bool:
        """Hand the model over in the supervisor's folder for it, if there is one on this machine; return whether."""
        if self.folder is None:
            return False
        try:
            nbytes, checksum = put(self.folder, self.comm.rank, views)
        except OSError:  # the disk is full, or the folder is gone: the supervisor knows what to do with the bytes
            return False
        self.comm.say(HandedOver(nbytes, checksum, score, note))
        return True

    def _send_paced(self, data: memoryview, score: float | None, note: str) -> None:
        """Send the model in parts, no faster than they arrive: heartbeats go the same way. Stop where the supervisor has
        the model, or asks for it again."""
        comm, finish = self.comm, self.comm.status.finish
        assert finish is not None
        have = min(comm.status.uploaded, len(data))
        window = self.window = self.window.resumed(have)

        def told(status: RunStatus) -> bool:
            return status.saved is not None or status.finish is not finish

        def may_go_on(status: RunStatus) -> bool:
            window.seen(status.uploaded, comm.clock.now())
            return window.room or told(status)

        while window.offset < len(data):
            comm.wait(may_go_on, self._idle)
            if told(comm.status):
                return
            part = data[window.offset : window.offset + window.part_nbytes]
            comm.say(Upload(window.offset, len(data), score, note), [bytes(part)])
            window.sent(len(part), comm.clock.now())


def _why_differ(refused: Mapping[int, int]) -> str:
    """Return why replicas differ, as far as this worker knows; the supervisor knows what the others refused."""
    text = "replicas differ after the drain, although it is promised that they cannot"
    counts = ", ".join(f"{count} messages of worker {rank}" for rank, count in sorted(refused.items()) if rank >= 0)
    return f"{text}; this worker refused {counts or 'nothing'}"


def handover_folder(settings: Mapping[str, Any], supervisor: str) -> Path | None:
    """Return the folder for the model, if the supervisor, which is at this address, is on this machine."""
    told = settings.get(SETTING) or []
    return Path(told[0]) if is_own(supervisor) and is_here(told) else None


def finish_policy(settings: Mapping[str, Any], last: Choice, validation: Validation) -> str:
    """Return how the model is chosen at the end of a run whose ``last`` strategy this is."""
    finish: str = settings.get("finish") or default_finish(last)
    if finish == "best" and validation.validate is None and "finish" in settings.get("explicit", ()):
        raise Misuse(
            "finish=best in a script without a validation function",
            "taut.join(model, optimizer, validate=...), a function that takes the model and gives a number",
            "or --finish average",
        )
    return finish


def save_here(replica: Replica, name: str) -> Path:
    """Save the model as this worker has it, under this name in the present folder."""
    replica.take_shared()
    path = Path(name).absolute()
    with AtomicFile(path) as file:
        for view in file_views(replica.params.state_dict()):
            file.write(view)
    return path
