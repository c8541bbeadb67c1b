"""The strategies of a run, one after the other, as one worker follows them. Most runs have one phase.

At the end of a step after which the supervisor has announced the next phase, the worker ends the present one as it would
end the run: the exchange is finished (everything under way arrives), replicas that may differ are averaged, and from the
weights that all have then the next exchange starts, over protocols of its own.

Who comes in mid-run begins in the phase that the run is in, and is as far in it as the one whose state it was given: what
it counts of the phase's steps goes on from there. (Should the next phase be announced before it is ready, it begins in
that one: ``Admission``.)

A model that grows begins a phase, too (``model/growth.py``): the strategy stays, and so does the count of its steps. So
phase ``number`` has the strategy ``number - growths`` of the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from taut.codecs import Codec, merge
from taut.codecs import parse as parse_codec
from taut.codecs.registry import kernels_of
from taut.core.callbacks import do_nothing
from taut.core.messages import PhaseDone
from taut.errors import MalformedMessage, Misuse
from taut.strategies.allreduce.compressed_group import pays
from taut.strategies.allreduce.sync import Sync
from taut.strategies.compatibility import agrees, codec_for, codecs_in_use
from taut.strategies.delivery.channels import Channels
from taut.strategies.phases import Phase, parse_schedule
from taut.strategies.rate_scaling import scaling_in
from taut.strategies.registry import Choice, on_topology
from taut.topologies.registry import parse as parse_topology
from taut.topologies.shapes.basic import Complete
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.phase_protocols import Protocol
from taut.worker.exchange.base import Exchange
from taut.worker.exchange.gradients import GradientExchange
from taut.worker.exchange.rounds import RoundExchange
from taut.worker.exchange.stream import StreamExchange
from taut.worker.exchange.stream_driver import stream_limits
from taut.worker.exchange.weights import WeightExchange
from taut.worker.finish import Averaged, FinalAverager
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.growth import Growth, NewValues
from taut.worker.model.hand_made import check_rates, check_reachable
from taut.worker.model.model_checks import check_shareable
from taut.worker.model.replica import Replica
from taut.worker.model.snapshot import Snapshot
from taut.worker.model.training_state import load_training, pack_training
from taut.worker.model.vector_views import DeviceGradientsCodec, FlatParamsCodec
from taut.worker.optimizer.moments import Moments, begin_moments
from taut.worker.time_split import Stopwatch

DENSE = "dense"  # the codec that vectors need none for
INDEPENDENT = "independent"  # the strategy under which nobody tells anybody anything


class Phases:
    """``settings`` are the run's, as the supervisor sent them; ``replica`` and ``exchange``: the present phase's."""

    replica: Replica
    exchange: Exchange
    begun = False  # the replica is there

    def __init__(self, settings: Mapping[str, Any], params: FlatParams, codec_of_script: str | None) -> None:
        self.settings, self.params, self._codec_of_script = settings, params, codec_of_script
        self.schedule = parse_schedule(settings.get("strategy", "async"))
        self._scaling = scaling_in(settings, settings.get("workers", 1))
        self.number = 0
        self.growths = 0  # phases so far that began with a grown model
        self.growth: Growth | None = None  # that this worker waits for
        self.grown: Callable[[Growth], None] = _nothing_grown  # called when the model has grown
        self.changed: Callable[[], None] = do_nothing  # called after a change
        self.taken_over: Callable[[], None] = do_nothing  # called when the weights are those of another worker
        self.steps = 0  # in this phase, of this worker or of the one whose state it was given
        self._given: Snapshot | None = None  # by a donor, until the optimizer is known
        self.also: Mapping[str, Any] = {}  # that the script has, beside model and optimizer
        self._optimizer: torch.optim.Optimizer | None = None
        self._previous: list[Callable[[], None]] = []  # what somebody who is behind may still need of us

    def enter(self, number: int) -> None:
        """Enter the phase that the run is in when this worker comes to it."""
        if number >= self._end and not self.schedule.resync:
            raise MalformedMessage(f"phase {number} of a run of {self._end}")
        self.number, self.steps = number, 0

    @property
    def _end(self) -> int:
        """Return the number after that of the last strategy's phase."""
        return len(self.schedule.phases) + self.growths

    @property
    def of_schedule(self) -> int:
        """Return the place of the present strategy in the schedule."""
        return self.number - self.growths

    @property
    def phase(self) -> Phase:
        return self.schedule.at(self.of_schedule)

    @property
    def choice(self) -> Choice:
        """Return the present strategy, as it runs on the run's topology."""
        return self.choice_of(self.number)

    def choice_of(self, number: int) -> Choice:
        return on_topology(self.schedule.at(number - self.growths).choice, self.settings.get("topology", "complete"))

    @property
    def last(self) -> Choice:
        """Return the strategy that the run ends with."""
        return on_topology(self.schedule.last, self.settings.get("topology", "complete"))

    def hands_over(self, number: int) -> bool:
        """Return whether a newcomer gets the state through the method in this phase, not from a donor."""
        choice = self.choice_of(number)
        return choice.is_method and bool(choice.kind.hands_over)

    def protocol(self, number: int = 0) -> Protocol:
        """Return what the communication thread runs in this phase: the stream itself, or the channels under a method."""
        choice, dense_nbytes = self.choice_of(number), 4 * self.params.size
        if choice.is_method:
            return Channels(window_nbytes=max(8 << 20, dense_nbytes // 8), limit_nbytes=4 * dense_nbytes + (1 << 20))
        limits = stream_limits(dense_nbytes)
        keep_nbytes = 2 * limits["budget_nbytes"] + 2 * dense_nbytes + (64 << 20)  # honest origins merge far less
        exact = self._codec(number).exact  # else equal updates, too, leave replicas that differ
        given = {"check": partial(self._check, number), "compares": exact, "keep_nbytes": keep_nbytes}
        return choice.stream(partial(merge, size=self.params.size), **given, **limits)

    def _check(self, number: int, payload: bytes) -> object:
        """Look at an update of phase ``number`` (``Replica.check``); if that is to come, when the update is included."""
        return self.replica.check(payload) if self.begun and number == self.number else None

    def begin(self, comm: CommThread, watch: Stopwatch) -> None:
        """Make the replica and the exchange of the present phase."""
        self.comm, self.watch = comm, watch
        comm.complement, comm.aside = self._complemented, self._look_back
        choice = self.choice
        uses_codec = choice.kind.streams if choice.is_method else choice.kind.complete
        self.replica = Replica(self.params, self._codec(self.number), uses_codec, watch)
        self.replica.seed = comm.rank
        self.begun = True
        if not choice.is_method:
            self.exchange = StreamExchange(self.replica, comm, watch)
            self.exchange.scaling = self._scaling
            return
        method = choice.method()
        shape = parse_topology(self.settings.get("topology", "complete"))
        exchange: RoundExchange
        if isinstance(method, Sync):
            exchange = GradientExchange(method, self.replica, comm, shape, watch)
        else:
            exchange = WeightExchange(method, self.replica, comm, shape, watch)
        if not method.streams and self.replica.codec.name != DENSE:
            exchange.local.coder = self._coder(isinstance(method, Sync))
        exchange.took_over, exchange.scaling = self.joined, self._scaling
        if method.majority and method.takes_newcomers and len(self.schedule.phases) == 1:
            comm.dispatcher.join_elections()
        self.exchange = exchange

    def _coder(self, of_gradients: bool) -> FlatParamsCodec:
        """Return the codec of a method that exchanges vectors, for the same number of workers everywhere."""
        welcome, codec = self.comm.status.welcome, self.replica.codec
        workers = 1 if welcome is None else max(1, welcome.workers)
        on_device = of_gradients and not self.params.on_cpu and pays(codec.facts.bits, workers)
        kind = DeviceGradientsCodec if on_device else FlatParamsCodec
        return kind(codec, self.params, self.watch, self.replica.seed, workers)

    @property
    def reached(self) -> int:
        """Return the phase before which all steps are made."""
        return self.number + (self.phase.steps is not None and self.steps >= self.phase.steps)

    def _complemented(self, state: Snapshot) -> Snapshot:
        """Return the state with how far this worker is; and with its optimizer's, where that will be averaged with the
        others' before a phase in which all must make the same steps: a newcomer has made none."""
        later = range(self.number + 1, self._end)
        averaged = any(_of_gradients(self.choice_of(number)) for number in later)
        training = pack_training(self._optimizer, {}) if averaged and self._optimizer is not None else b""
        return replace(state, steps=self.steps, training=training)

    def joined(self, state: Snapshot) -> None:
        """Take over where the donor of this state was in the phase."""
        self.steps = state.steps
        if self.reached > self.number:
            self.comm.say(PhaseDone(self.reached))
        self._given = state if state.training and not self.hands_over(self.number) else None
        self.taken_over()

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Attach the optimizer whose steps are meant; ``also`` is known by then."""
        if self.choice.name != INDEPENDENT:
            check_shareable(optimizer)
        check_rates(optimizer, self._scaling)
        for number in range(self.number, self._end):
            check_reachable(optimizer, self.choice_of(number))
        self._optimizer = optimizer
        if self._given is not None and not optimizer.state:  # one that comes back has its own
            load_training(self._given.training, optimizer, {})
        self._given = None
        self.exchange.attach(optimizer)
        self.exchange.accompany(self.also)

    def stepped(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Count a step: say so when it was the last that this phase asks for, and change when all have said so."""
        self.steps += 1
        if not self.schedule.endless and self.steps == self.phase.steps:
            self.comm.say(PhaseDone(self.number + 1))
        if self._previous:
            self._look_back()
        self.follow(optimizer)

    def _look_back(self) -> None:
        for idle in self._previous:
            idle()

    def follow(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Go to the phase that was announced, if one was. Also from a wait for data: who has it may wait for us."""
        if self.comm.status.phase > self.number:
            self.exchange.finish()
            self.change(optimizer)

    def change(self, optimizer: torch.optim.Optimizer | None) -> None:
        previous = [self.exchange.idle] if self.choice.is_method else []
        alike, coming = agrees(self.choice), self.number + 1
        self.replica.retire()
        if self.comm.status.growths > self.growths and coming == self.comm.status.phase:
            self._grow(previous, alike)
            return
        of_gradients = _of_gradients(self.choice_of(coming))
        if of_gradients or not alike:
            with self.params.masters.as_vector():  # the moments that a first step makes are float32
                moments = _moments(optimizer) if of_gradients else None
            averager = FinalAverager(Averaged(self.replica, moments), self.comm)
            averager.run(self.exchange.idle)
            previous.append(averager.catch_up)
            if alike and coming >= self._end:
                averager.check_drift()
        self._previous = previous
        self._begin_next(coming, optimizer)

    def _grow(self, previous: list[Callable[[], None]], alike: bool) -> None:
        """Go to the next phase with the grown model. ``alike``: all have the same weights already."""
        growth, grid, steps = self.growth, self.replica.grid, self.steps
        if growth is None:
            given = "a script that ended while those of the other workers called worker.grow"
            raise Misuse(
                given, "worker.grow on every worker, equally often", "call it outside of any condition on the worker"
            )
        growth.apply(self.params.masters.rounding, self.params)
        assert growth.params is not None
        membership = self.comm.dispatcher.membership(Complete(), self.comm.phase_protocol.phase)
        values = NewValues(growth, not alike, membership.members.index(self.comm.rank))
        if values.needed:
            averager = FinalAverager(values, self.comm)
            averager.run(self.exchange.idle)
            previous.append(averager.catch_up)
        self._previous, self.growth, self.params = previous, None, growth.params
        self.growths += 1
        self.also = growth.also
        self.grown(growth)
        exponents = dict(zip(grid.names, grid.exponents, strict=True)) if grid is not None and alike else {}
        kept = {name: exponent for name, exponent in exponents.items() if name in growth.unchanged}
        self._begin_next(self.number + 1, growth.optimizer, kept)
        self.steps = steps

    def _begin_next(
        self, coming: int, optimizer: torch.optim.Optimizer | None, kept: Mapping[str, int] | None = None
    ) -> None:
        """Begin the next phase with the weights as they are. ``kept``: as ``Replica.found`` takes it."""
        self.comm.advance(self.protocol(coming))
        self.enter(coming)
        self.begin(self.comm, self.watch)
        self.replica.found(self.comm.workers, kept)
        if optimizer is not None:
            self.attach(optimizer)
        self.exchange.start()
        self.changed()
        self.watch.charge("wait")

    def ask_growth(self) -> None:
        """Tell the supervisor that this worker waits for a grown model. To be repeated: it may be lost."""
        assert self.growth is not None
        self.comm.say(PhaseDone(self.reached, self.growths + 1, self.growth.specs()))

    def _codec(self, number: int) -> Codec:
        """Return the codec of phase ``number``: what was said explicitly, or else the script's wish, or else the run's:
        the first that the strategy can use."""
        return parse_codec(codec_for(self.choice_of(number), self._wishes))

    @property
    def _wishes(self) -> list[str | None]:
        wishes = [self._codec_of_script, self.settings.get("codec")]
        if "codec" in self.settings.get("explicit", ()):
            wishes.reverse()
        return wishes

    def kernels(self) -> list[str]:
        """Return the names of the kernels that the phases' codecs need for a model on the CPU."""
        topology = self.settings.get("topology", "complete")
        return kernels_of(codecs_in_use(self.schedule, topology, self._wishes)) if self.params.on_cpu else []


def _nothing_grown(growth: Growth) -> None:
    raise AssertionError("a model that no worker trains")


def _moments(optimizer: torch.optim.Optimizer | None) -> Moments | None:
    if optimizer is None:
        return None
    begin_moments(optimizer)
    return Moments(optimizer)


def _of_gradients(choice: Choice) -> bool:
    """Return whether all make the same steps: the optimizers' moments are the same, too."""
    return choice.is_method and bool(choice.kind.vector == "gradients")
