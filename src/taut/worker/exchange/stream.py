"""Streams in the runtime: the turns of ``stream_driver.py`` with a communication thread and a codec."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from taut.core.events import Ended, Heard, Include, Taken, Ticked
from taut.core.staleness_counts import Counts
from taut.errors import MalformedMessage
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.run_status import RunStatus
from taut.worker.exchange.base import Exchange
from taut.worker.exchange.residual_handoff import ResidualHandoffDriver
from taut.worker.exchange.stream_driver import ALONE_STEPS_PER_TURN, StreamDriver
from taut.worker.exchange.turns import Turn, Wait
from taut.worker.model.replica import Replica
from taut.worker.model.snapshot import Snapshot
from taut.worker.time_split import Stopwatch


class Updating(Protocol):
    """What makes and includes updates: a ``Replica``, or a framework-free ``taut.Worker``."""

    def emit(self) -> bytes | None: ...
    def absorb(self, payload: bytes, sender: int, checked: object = None) -> None: ...
    def state(self) -> Snapshot: ...


class CommStream:
    """The ``StreamIO`` of ``worker`` on ``comm``. ``have``: the updates that were included, by origin. All of it belongs
    to the training thread."""

    publishes = True

    def __init__(self, worker: Updating, comm: CommThread, watch: Stopwatch | None = None) -> None:
        self.worker, self.comm, self.watch = worker, comm, watch or Stopwatch()
        self.emit, self.take_in, self.charge = worker.emit, partial(comm.pump, True), self.watch.charge
        self.worked_s = self.watch.thread_s  # how busy the machine is must not change what is sent
        self.have: dict[int, int] = {}
        self.published = self.included = 0

    @property
    def bounded(self) -> bool:
        return self.comm.dispatcher.bounded

    @property
    def horizon(self) -> float:
        return self.comm.protocols.horizon

    @property
    def fastest(self) -> int:
        return self.comm.protocols.fastest

    @property
    def stopping(self) -> bool:
        return self.comm.status.stopping

    @property
    def over(self) -> bool:
        return self.comm.status.over(self.comm.phase_protocol.phase)

    @property
    def drained(self) -> bool:
        return self.comm.status.drained

    @property
    def delivered(self) -> bool:
        return self.comm.delivered()

    def steps_alone(self) -> int | None:
        return None

    def unheard(self) -> bool:
        return False

    def retuned(self) -> None:
        pass

    def include(self) -> dict[int, int]:
        if self.comm.phase_protocol.mail:
            self.take_mail()
        items = self.comm.take()
        for item in self.left_of([item for item in items if item.payload]):  # else it was refused when it came
            try:
                self.worker.absorb(item.payload, item.origin, item.checked)
            except MalformedMessage as error:
                # Every worker refuses the same bytes, so replicas still agree without them.
                self.comm.rejections.add(item.origin, str(error))
        positions = {item.origin: item.hi for item in items}
        self.included += len(items)
        self.have.update(positions)
        return positions

    def left_of(self, items: Sequence[Include]) -> Sequence[Include]:
        """Include those updates that can be included together; return the others."""
        return items

    def take_mail(self) -> None:
        """Take the messages that are no updates. A worker without a codec has no use for them."""

    def flush(self) -> Iterable[bytes]:
        return ()

    def publish(self, payload: bytes | None, positions: dict[int, int]) -> None:
        if payload is not None:
            self.published += 1
        self.comm.publish(payload, positions)
        self.comm.pump(receive=False)
        self._serve()

    def confirm(self, positions: dict[int, int]) -> None:
        if positions:
            self.comm.tell(Taken(positions))
        self._serve()

    def _serve(self) -> None:
        """Give the state to a newcomer that asked for it. Everything received is included first (see ``Broadcast``)."""
        if self.comm.transfer.wanted:
            self.comm.tell(Taken(self.include()))
            self.comm.grant(self.worker.state(), {**self.have, self.comm.rank: self.published})

    def tick(self, clock: int) -> None:
        self.comm.tell(Ticked(clock))
        self.comm.pump(receive=False)  # another worker may be waiting for it

    def hand_off(self, idle: Callable[[], None]) -> Turn:
        yield from ()

    def end(self) -> None:
        self.charge("compute")
        self.comm.tell(Ended())


class ReplicaStream(CommStream):
    """The same for a torch model, whose codec is tuned, and may keep a residual."""

    worker: Replica

    def __init__(self, replica: Replica, comm: CommThread, watch: Stopwatch) -> None:
        super().__init__(replica, comm, watch)
        self.handoff = ResidualHandoffDriver(comm, replica.inherit)
        self.hear: Callable[[Heard], bool] = self.handoff.heard  # takes a message that is no update; False: unknown

    @property
    def publishes(self) -> bool:  # type: ignore[override]
        return self.worker.uses_codec

    def steps_alone(self) -> int | None:
        if self.comm.workers > 1:
            return None
        # Where a residual holds back what is not sent, every step counts.
        return 1 if self.worker.codec_state.r is not None else ALONE_STEPS_PER_TURN

    def unheard(self) -> bool:
        comm = self.comm
        if comm.dispatcher.workers > 1 or comm.transfer.wanted or self.bounded:
            return False
        return self.worker.fall_behind()

    def left_of(self, items: Sequence[Include]) -> Sequence[Include]:
        return self.worker.absorb_together(items)

    def retuned(self) -> None:
        self.worker.retune(self.comm.workers, self.comm.protocols.staleness)
        self.worker.update_sketch()

    def take_mail(self) -> None:
        """Take the messages that are no updates: the parts of a residual that another worker hands off."""
        phase_protocol = self.comm.phase_protocol
        while phase_protocol.mail:
            item = phase_protocol.take_mail()
            try:
                if not self.hear(item):
                    raise MalformedMessage(f"{item.note.kind!r} is no message of a stream's")
            except MalformedMessage as error:
                self.comm.rejections.add(item.sender, str(error))

    def flush(self) -> Iterable[bytes]:
        self.charge("merge")
        for payload in self.worker.flush():
            self.charge("encode")
            yield payload

    def hand_off(self, idle: Callable[[], None]) -> Turn:
        return self.handoff.hand_on(self.worker.residual_parts(), (), idle)


class StreamExchange(Exchange):
    """A stream of updates between ``replica`` and the others."""

    weighs_steps = False

    def __init__(self, replica: Replica, comm: CommThread, watch: Stopwatch) -> None:
        self.replica, self.comm, self.watch = replica, comm, watch
        self.io = ReplicaStream(replica, comm, watch)
        self.driver = StreamDriver(self.io)

    def start(self) -> None:
        self.comm.run_turn(self.driver.start(), self.watch)

    def after_step(self, samples: int, rate: float) -> Iterable[Wait | None]:
        self.replica.steps += 1
        due = self.driver.due()
        self.comm.protocols.steps_per_turn = self.driver.steps_per_turn
        return self.driver.turn() if due else ()

    def idle(self) -> None:
        self.driver.rest()

    def wait(self, until: Callable[[RunStatus], bool], again: Callable[[], None]) -> None:
        self.comm.run_turn(self.driver.wait(lambda: until(self.comm.status)), None, again)

    def finish(self) -> None:
        self.comm.run_turn(self.driver.finish(), self.watch)

    def leave(self) -> None:
        self.comm.run_turn(self.driver.leave(), self.watch)

    def joined(self, have: dict[int, int]) -> None:
        self.io.have.update(have)

    def have(self) -> dict[int, int]:
        return {**self.io.have, self.comm.rank: self.io.published}

    @property
    def exact(self) -> bool:
        replica = self.replica
        if not (replica.codec.exact and replica.uses_codec):
            return False
        return replica.grid is None or not replica.grid.exceeded(replica.shared())

    @property
    def sent(self) -> int:  # type: ignore[override]
        return self.io.published

    @property
    def included(self) -> int:  # type: ignore[override]
        return self.io.included

    @property
    def staleness(self) -> float:  # type: ignore[override]
        return float(self.comm.protocols.staleness * self.driver.steps_per_turn)

    def staleness_counts(self) -> Counts:
        return self.comm.protocols.late.taken()

    def kept(self) -> dict[str, int]:
        driver = self.driver
        return {"steps": driver.steps, "steps_per_turn": driver.steps_per_turn, "workers": self.comm.workers}

    def restore(self, kept: Mapping[str, int]) -> None:
        if kept["workers"] == self.comm.workers:
            self.driver.steps, self.driver.steps_per_turn = kept["steps"], kept["steps_per_turn"]
