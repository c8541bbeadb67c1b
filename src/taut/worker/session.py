"""A worker's part in a run: admission, the state, leases, exchange, the orderly end. All of it in the training thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from taut.collectives.ring import dense_ring_nbytes
from taut.core.callbacks import do_nothing
from taut.core.messages import Done, Failed, Returned, Statistics, WorkerMessage
from taut.errors import Expelled, GivenUp, NetworkError, PeerLost, Refused, Stopping, SupervisorLost
from taut.worker.checkpoints.resume import Resumption
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.run_status import RunStatus
from taut.worker.data.leases import SupervisorLeases
from taut.worker.exchange.base import Exchange
from taut.worker.finish import Finishing, finish_policy, handover_folder, save_here
from taut.worker.joining.admission import JoinHandshake
from taut.worker.joining.connection import Connector
from taut.worker.joining.rejoin import RejoinState, carried, less, together
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.growth import Growth
from taut.worker.model.replica import Replica
from taut.worker.phases import Phases
from taut.worker.tracing import step_tracer
from taut.worker.validation import Validation

if TYPE_CHECKING:
    import torch

    from taut.worker.checkpoints.checkpointer import Checkpointer
    from taut.worker.joining.island_member import IslandMember


log = logging.getLogger("taut")


class WorkerSession:
    """Joins the run that ``connector`` leads to, with the model in ``params``. When the constructor returns, the
    worker is
    admitted and has the run's state; ``train`` waits for the start."""

    def __init__(
        self,
        connector: Connector,
        params: FlatParams,
        codec: str | None = None,
        validation: Validation | None = None,
        member: IslandMember | None = None,
    ) -> None:
        self.comm: CommThread  # of the present rank
        self.params, self._codec = params, codec
        self.member = member  # of an island; None: this worker is one process
        self.validation = validation or Validation()
        self.score: float | None = None  # of this worker's replica, at the end
        self.statistics: Callable[[], Statistics] = Statistics
        self.bytes_dense = 0
        self.settings: dict[str, Any] = {}
        self.keeper: Checkpointer | None = None  # of this worker's part of the checkpoints
        self._optimizer: torch.optim.Optimizer | None = None
        self.watch = connector.watch
        self._connector = connector
        self.leases: SupervisorLeases
        self._home: JoinHandshake  # the last one after which the model had the run's state
        self._before = Statistics()  # what was counted under earlier ranks
        self.started = False
        self.also: Mapping[str, Any] = {}  # that the script has, beside model and optimizer
        self.returned: Callable[[], None] = do_nothing  # called when this worker has come back
        was = -1
        while True:
            try:
                self._join(None, was)
                break
            except GivenUp:  # it stood still while it joined: it begins anew
                was = self.comm.rank
                connector.renew()

    def _join(self, carried: RejoinState | None, was: int) -> None:
        """Join the run, with what is ``carried`` from an earlier rank, if this process ``was`` in the run before."""
        statistics = lambda: self.statistics()  # noqa: E731, PLW0108  # it is set later
        handshake = JoinHandshake(self._connector, self.params, self._codec, statistics, self.member)
        self._handshake, self.comm = handshake, handshake.comm
        if carried is not None:  # it knows the supervisor, which may be coming back itself
            supervisor = handshake.comm.supervisor
            supervisor.admission_s = float(self.settings.get("patience_s", supervisor.patience_s))
        handshake.comm.start()
        try:
            handshake.ask(was)
            self.seed, self.run, self.settings = handshake.welcome.seed, handshake.welcome.run, handshake.settings
            self.finish_policy = finish_policy(handshake.settings, self.phases.last, self.validation)
            self.leases = SupervisorLeases(self, self.leases.left if carried is not None else None)
            handshake.comm.supervisor.standing = self._standing
            self._trace(handshake)
            handshake.take_over(carried)
            self._home = handshake
            self._connector.joined(self)
        except BaseException as error:
            tells = isinstance(error, Exception) and not isinstance(error, NetworkError)  # of those the supervisor knows
            if tells:
                handshake.comm.say(Failed(f"{type(error).__name__}: {error}"[:4000], unfit=True))
            handshake.comm.close(linger_s=1.0 if tells else 0.0)
            raise

    def _trace(self, handshake: JoinHandshake) -> None:
        """Make spans of this worker's steps and messages, where the run's settings ask for it."""
        if self.watch.tracer is None:
            self.watch.tracer = step_tracer(self.settings, self.run, handshake.comm.rank)
        handshake.comm.dispatcher.tracer = self.watch.tracer

    def _close(self) -> None:
        self.comm.close(linger_s=1.0)
        if self.watch.tracer is not None:
            self.watch.tracer.close()

    @property
    def phases(self) -> Phases:
        return self._handshake.phases

    @property
    def workers(self) -> int:
        """Return with how many workers the run starts."""
        return self._handshake.welcome.workers

    @property
    def merged(self) -> bool:
        """Return whether the run's state is in the model."""
        return self._handshake.merged

    @property
    def resumption(self) -> Resumption | None:
        return self._handshake.resumption

    @property
    def exchange(self) -> Exchange:
        return self._handshake.phases.exchange

    @property
    def replica(self) -> Replica:
        return self.phases.replica

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Tell the phases the optimizer whose steps are meant."""
        self._optimizer = optimizer
        self.phases.also = self.also
        self.phases.attach(optimizer)

    def adopt(self, growth: Growth) -> None:
        """Take the grown model: the next phase is about to begin with it."""
        assert growth.params is not None
        self.params, self._optimizer, self.also = growth.params, growth.optimizer, growth.also

    def _standing(self) -> Returned:
        """Return what this worker did and holds, for a supervisor that came back. Asked by the communication thread."""
        with self.comm.status.changed:  # so that nobody is done in between
            (holds, done), state = self.leases.standing(), self._handshake.state
        phases = self.phases
        return Returned(self.comm.rank, state, phases.number, holds, done, reached=phases.reached)

    def train(self) -> None:
        """Wait for the start. Who comes in mid-run, and would hold up the others until its first step, starts when its
        script is at that (``enter``)."""
        if not self._handshake.late:
            self._begin(defers=True)

    def enter(self) -> bool:
        """Start, where the script is about to train and this worker has not started. Return whether it has started only
        now, with the weights of the others."""
        if self.started:
            return False
        self._begin()
        return True

    def _begin(self, defers: bool = False) -> None:
        try:
            self._start(defers)
        except GivenUp as error:
            self.come_back(error)
        self.watch.restart()
        if self.resumption is not None:
            self.resumption.restore_phase(self.phases)
            self.resumption.restore_exchange(self.exchange)

    def _start(self, defers: bool = False, carried: RejoinState | None = None) -> None:
        """Wait for the start, and start the exchange. ``defers``: not where the run has gone on to a phase in which this
        worker would hold up the others."""
        handshake = self._handshake
        while True:
            if not handshake.passed:
                handshake.get_ready()
                self.comm.wait(lambda status: status.started or status.stopping or handshake.passed, self.exchange.idle)
            if not handshake.passed:
                break
            handshake.take_over(carried)
            if self._optimizer is not None:
                self.attach(self._optimizer)
            self.phases.changed()
            if handshake.late and defers:
                return
        self.exchange.start()
        self.started = self._handshake.merged = True

    @property
    def stopping(self) -> bool:
        return self.comm.status.stopping

    @property
    def leaving(self) -> bool:
        """Return whether this worker alone is to go, and the run goes on."""
        status = self.comm.status
        return status.leave is not None and status.drain is None

    @property
    def rate(self) -> float:
        """Return by what the run's owner multiplies all learning rates now."""
        return self.comm.status.steering.rate

    def stand_still(self) -> None:
        """Wait, between two steps, as long as the run's owner has paused this worker. Others that meet it in rounds get
        turns without data, as where it waits for data. Where the supervisor is lost, nobody could end the pause: the
        worker goes on."""
        while not self._may_step(self.comm.status) and self.started and not (self.stopping or self.exchange.gathering):
            try:
                self.exchange.wait(self._may_stand_up, again=do_nothing)
                self.watch.charge("wait")
                if self.keeper is not None:
                    self.keeper.while_waiting()
                    self.keeper.before_change()
                self.follow()
            except GivenUp as error:
                self.come_back(error)

    def _may_stand_up(self, status: RunStatus) -> bool:
        return self._may_step(status) or self._may_go_on(status)

    def _may_step(self, status: RunStatus) -> bool:
        return not status.steering.paused or self.comm.supervisor.lost()

    def before_step(self, samples: int, rate: float, members: Collection[int]) -> None:
        """Exchange gradients, where the strategy does: they are there, and the optimizer has not moved yet."""
        while True:
            try:
                if self.exchange.exchanges_gradients or not isinstance(self.comm.status.failure, GivenUp):
                    self._check()  # else ``exchange`` sees to it, when the step is over
                turn = self.exchange.before_step(samples, rate, members)
                if turn != ():
                    self.comm.run_turn(turn, self.watch)
                return
            except GivenUp as error:  # the gradients are of weights that it has no longer: the step is the others'
                self.come_back(error)
                samples = 0

    def after_step(self, samples: int, rate: float) -> None:
        """Include what arrived and send what changed, after a local step."""
        self.watch.reached(1.0)
        self.watch.charge("compute")
        comm, phases = self.comm, self.phases
        if phases.exchange.counts_bytes:  # else there is nothing to compare with
            self.bytes_dense += dense_ring_nbytes(comm.workers, self.params.size)
        try:
            self._check()
            phases.replica.fix_slack(comm.status.steering.slack)
            turn = phases.exchange.after_step(samples, rate)
            if turn != ():
                comm.run_turn(turn, self.watch)
            phases.stepped(self._optimizer)
        except GivenUp as error:  # what the step changed is brought along
            self.come_back(error)
        self.watch.begin_step()

    def take_turn(self) -> None:
        """Take a turn that no step asks for."""
        self.watch.charge("compute")
        try:
            self._check()
            self.comm.run_turn(self.exchange.own_turn(0), self.watch)
        except GivenUp as error:
            self.come_back(error)
        self.watch.begin_step()

    def come_back(self, error: GivenUp) -> None:
        """Rejoin: this worker was silent for so long that the others went on without it, and would take it back under
        another rank, with the same model and optimizer. Raise ``Expelled`` where that cannot be any more."""
        first = was = self.comm.rank
        trained = self.leases.trained()
        brought = carried(self, error.without)
        brought.exchange.abandon()
        previous = [brought]
        while True:
            self._before = together(self._before, self.comm.supervisor.acknowledged)
            self._connector.renew()
            try:
                self._join(brought, was)
                if self._optimizer is not None:
                    self.attach(self._optimizer)
                self._start(carried=brought)
                break
            except GivenUp as again:
                if self._handshake.merged:
                    brought = carried(self, again.without)
                    brought.exchange.abandon()
                    previous.append(brought)
                was, error = max(was, self.comm.rank), again
            except Refused as refusal:
                raise Expelled(f"{error}; and it could not come back: {refusal}") from None
        self.comm.say(Returned(first, "gone", self.phases.number, [], trained))
        same = [each.exchange for each in previous if each.phase == self.phases.number]  # else it ended without that
        self.exchange.welcomed([one for exchange in same for one in exchange.unsent(self._handshake.gone())])
        self.bytes_dense = 0
        self.returned()
        self.watch.charge("wait")
        log.warning("worker %d was given up, and is back as worker %d (%s)", first, self.comm.rank, error)

    @property
    def announced(self) -> bool:
        """Return whether the next phase was announced, and this worker is not in it yet."""
        return self.comm.status.phase > self.phases.number

    def follow(self) -> None:
        """Go to the phase that was announced, if one was."""
        self.phases.follow(self._optimizer)

    def grow(self, growth: Growth) -> None:
        """Go to the next phase with the grown model, as soon as every worker asks for its own. Raise ``Stopping`` where
        the run ends before that: the model stays as it was."""
        self.enter()
        target = self.phases.growths + 1
        while True:
            self.phases.growth = growth
            try:
                self.phases.ask_growth()
                self._await_growth(target)
                return
            except GivenUp as error:
                self.come_back(error)

    def _await_growth(self, target: int) -> None:
        while self.phases.growths < target:
            if self.stopping:
                self.phases.growth = None
                raise Stopping
            self.exchange.wait(self._may_go_on, again=self.phases.ask_growth)
            self.watch.charge("wait")
            if self.keeper is not None:
                self.keeper.while_waiting()  # first: all parts of a checkpoint are of the same model
                self.keeper.before_change()
            self.follow()

    def _may_go_on(self, status: RunStatus) -> bool:
        wanted = self.keeper is not None and self.keeper.can_take_waiting
        return self.announced or status.stopping or wanted

    def say(self, message: WorkerMessage) -> None:
        """Send a message to the supervisor, under the present rank."""
        self.comm.say(message)

    def _check(self) -> None:
        if self.comm.status.failure is not None:
            raise self.comm.status.failure

    def add_statistics(self, mine: Statistics) -> Statistics:
        """Return ``mine`` with what the session knows: traffic and codec. All of it under the present rank alone."""
        codec_state = self.replica.codec_state
        return msgspec.structs.replace(
            less(mine, self._before),
            bytes_sent=self.comm.dispatcher.bytes_sent,
            bytes_dense=self.bytes_dense,
            updates_sent=self.exchange.sent,
            updates_included=self.exchange.included,
            staleness=self.exchange.staleness if self.exchange.sent and self.comm.dispatcher.bytes_sent else 0.0,
            counted=" ".join(f"{name}={value:g}" for name, value in self.exchange.figures().items())[:1024],
            density=float(codec_state.density) if codec_state is not None else 0.0,
            tau=float(codec_state.tau) if codec_state is not None else 0.0,
            late=self.exchange.staleness_counts(),
        )

    # --------------------------------------------------------------------------------------------- the end

    def finish(self, begun: Container[int] = ()) -> None:
        """Drain, agree on the model, hand it in if asked to, and go. ``begun``: leases that were trained on in part."""
        try:
            self.enter()
            self._say_done(begun)
            self._end()
            self._agree()
            self._connector.left("the run is over")
        except (SupervisorLost, PeerLost) as error:
            raise type(error)(f"{error}; the model as this worker has it is in {self.save_here()}") from None
        finally:
            self._close()

    def _say_done(self, begun: Container[int] = ()) -> None:
        with self.comm.status.changed:
            self._handshake.state, begun = "done", self.leases.end(begun)
        self.comm.say(Done(begun=begun))

    def _end(self) -> None:
        """Finish the exchange; as long as that ends a phase and not the run, go to the next one, whichever worker has the
        data."""
        while True:
            try:
                self.exchange.finish()
                if self.comm.status.phase <= self.phases.number:
                    return
                self.phases.change(self._optimizer)
            except GivenUp as error:
                self.come_back(error)
                self._say_done()

    def save_here(self) -> Path:
        """Save the model in the present folder, so that it is not lost where no supervisor takes it."""
        home = self._home
        return save_here(home.phases.replica, f"{self.run}-worker-{home.comm.rank}.safetensors")

    def leave(self, begun: Container[int] = ()) -> None:
        """Go before the end: wait until all others have everything of ours, say good-bye."""
        try:
            self.exchange.leave()
            self.comm.say(Done(leaving=True, begun=self.leases.end(begun)))
            self._connector.left("left the run, which goes on")
        finally:
            self._close()

    def _agree(self) -> None:
        choice = self.phases.choice
        consensus = choice.is_method and choice.kind.consensus  # then there is nothing left to average
        finishing = Finishing(
            self.comm,
            self.replica,
            self.exchange,
            self.validation,
            self.statistics,
            averages=self.comm.status.averages or (self.finish_policy == "average" and not consensus),
            folder=handover_folder(self.settings, self.comm.transport.supervisor.address),
            member=self.member,
        )
        try:
            finishing.run()
        finally:
            self.score = finishing.score
