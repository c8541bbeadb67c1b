"""The driver of methods that exchange gradients: before the optimizer's step, and during backward where that is possible.

Around a turn it sees to it that all replicas make the same step:

- A worker without data takes turns too, and its optimizer moves by the mean of the others.
- The numbers of the optimizer's groups (rates, momentum, ...) are agreed upon with the gradients (the mean over samples),
  since a worker's own schedule counts its own steps, and those differ. So is the norm that ``worker.step`` clips to.
- A script with several optimizers takes a turn for each step of one. Where others step another one in the same turn, that
  one is stepped here, too.
- A newcomer is given the state of a member (``newcomer_state.py``).
- Rounds that were closed without this worker (backup workers) are made up for before it trains again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from taut.errors import Misuse, Stopping
from taut.strategies.allreduce.compressed_group import CompressedGroup
from taut.strategies.allreduce.round_agreement import NEW
from taut.strategies.allreduce.round_speeds import RoundSpeeds
from taut.strategies.allreduce.sync import Sync
from taut.strategies.allreduce.sync_state import SyncState
from taut.strategies.local import Wish
from taut.worker.exchange.buckets import GradientBuckets
from taut.worker.exchange.newcomer_state import NewcomerState
from taut.worker.exchange.round_driver import FORWARD_SHARE, GradientDriver
from taut.worker.exchange.rounds import RoundExchange
from taut.worker.exchange.torch_distributed import TorchDistributedGroup
from taut.worker.exchange.turns import Turn
from taut.worker.model.vector_views import DeviceGradientsCodec, Gradients
from taut.worker.optimizer.hyperparameters import Hyperparameters
from taut.worker.optimizer.joined import members_of, takes_sparse

if TYPE_CHECKING:
    import torch

    from taut.topologies.shape import Shape
    from taut.worker.comm.comm_thread import CommThread
    from taut.worker.model.replica import Replica
    from taut.worker.time_split import Stopwatch

log = logging.getLogger(__name__)


class GradientExchange(RoundExchange):
    """Drives ``Sync``. The optimizer is known from ``attach`` on, before ``start``."""

    method: Sync
    method_state: SyncState
    local: Gradients
    driver: GradientDriver
    exchanges_gradients = True

    _optimizer: torch.optim.Optimizer
    _buckets: GradientBuckets | None = None
    _computed = 0  # elements whose gradients are there, in this backward

    def __init__(self, method: Sync, replica: Replica, comm: CommThread, shape: Shape, watch: Stopwatch) -> None:
        super().__init__(method, Gradients(replica.params), replica, comm, shape, watch)
        self.driver = GradientDriver(method, self)
        self._torch = TorchDistributedGroup(self) if method.backend is not None else None
        self.counts_bytes = self._torch is None

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        self.check_optimizer(optimizer)
        self._optimizer = optimizer
        members = members_of(optimizer)
        self._settings = [Hyperparameters(member) for member in members]
        for member, settings in zip(members, self._settings, strict=True):
            member.register_step_post_hook(lambda *_, settings=settings: settings.restore())
        self.local.wishes = [Wish(settings.read()) for settings in self._settings]
        self.local.owners, self.local.sparse = self._owners(optimizer), takes_sparse(optimizer)
        self._all = range(len(members))
        self._postponed: dict[
            int, dict[int, int]
        ] = {}  # buckets that are sent after backward, and what ``_sent_as`` gets
        self._sent_as: dict[int, int] = {}  # per parameter that was sent during backward: its gradient's version
        self._newcomers = NewcomerState(self)

    def _owners(self, optimizer: torch.optim.Optimizer) -> list[int]:
        """Return, for each parameter of the flat vector, the number of the optimizer that has it."""
        groups = [(number, group) for number, one in enumerate(members_of(optimizer)) for group in one.param_groups]
        owners = {id(parameter): number for number, group in groups for parameter in group["params"]}
        return [owners.get(id(parameter), 0) for parameter in self.replica.params.parameters]

    def _wish(self, members: Collection[int]) -> None:
        """Say what this worker wishes, before a round for the steps of these optimizers. The owner's factor is part of
        the wish: workers hear of a new one at different times, and all must make the same step."""
        factor = self.comm.status.steering.rate
        for number, (wish, settings) in enumerate(zip(self.local.wishes, self._settings, strict=True)):
            wish.numbers = list(settings.scaled(settings.read(), factor))
            wish.steps, wish.share = number in members, 0.0

    @property
    def _first_rate(self) -> float:
        return self.local.wishes[0].numbers[0]

    def share_speed(self, global_batch: int, speed: float) -> RoundSpeeds | None:
        if self.shares_speeds:
            self.method_state.global_batch = global_batch * self.method.every
        return self.take_speeds(speed)

    def accompany(self, also: Mapping[str, Any]) -> None:
        self._newcomers.also = also

    def at_batch(self) -> None:
        self._newcomers.at_batch(self._optimizer)

    @property
    def gathering(self) -> bool:  # type: ignore[override]
        return self.driver.gathered > 0

    def start(self) -> None:
        if isinstance(self.local.coder, DeviceGradientsCodec):
            self.local.stay_on_device()
        self.local.since = NEW if self.lacks_state else 0
        self.start_method()
        self._newcomers.start()
        if self.method.launches and len(self.method_state.buckets) > 1:
            bounds = [(bucket.first, bucket.last) for bucket in self.method_state.buckets]
            self._buckets = GradientBuckets(self.replica.params.parameters, bounds, self._launch)
        if self._torch is not None:
            self._torch.connect()

    def idle(self) -> None:
        self.catch_up()  # and no more: the last mean in the gradients would be added to those of the next backward

    def catch_up(self) -> None:
        if self._torch is not None:
            self._torch.check_members()
        self.hear()
        if self.method_state is not None and self.method.takes_newcomers:
            self._newcomers.serve(self._optimizer)

    # ---------------------------------------------------------------------------------------------- one step

    def prepare(self, samples: int, rate: float, clip_norm: float | None, early: bool = True) -> tuple[float, bool]:
        """Count a micro-batch: the gradients of ``every`` ones add up, each weighted by its samples."""
        self.clip(clip_norm or 0.0)
        if self.method.every == 1:
            if early:
                self._arm(samples)
            return 1.0, True
        due, gathered = self.driver.gather(samples), self.driver.gathered
        self.local.scale = 1.0 / gathered
        if due and early:
            self._arm(gathered)
        return float(samples), due

    def clip(self, norm: float) -> None:
        self.method_state.clip_norm = norm

    def drop_gradients(self) -> None:
        self._clear()
        self.driver.gathered = self.driver.micro_batches = 0

    def arm(self, samples: int, rate: float) -> None:
        if len(self._all) == 1:  # of several optimizers, nobody knows yet whose step comes
            self._arm(samples)

    def _arm(self, samples: int) -> None:
        if self._buckets is not None:
            self._wish(self._all)
            self._samples = samples
            self._computed = 0
            self._postponed.clear()
            self._buckets.arm()

    def _launch(self, number: int) -> None:
        bucket = self.method_state.buckets[number]
        if bucket.launched:
            return  # in a backward that the user gave up: it cannot be taken back
        written = {each: self._written(each) for each in range(bucket.first, bucket.last)}
        if self.watch.elsewhere:
            # Backward on a GPU runs in one thread for all simulated workers. If one of them waited there for virtual
            # time, none could compute: it waits after backward, in its own thread, for the same times.
            self._postponed[number] = written
        else:
            self._send(number, written)

    def _send(self, number: int, written: Mapping[int, int]) -> None:
        bucket = self.method_state.buckets[number]
        self._computed += bucket.hi - bucket.lo
        self.watch.reached(FORWARD_SHARE + (1.0 - FORWARD_SHARE) * self._computed / self.replica.params.size)
        self.local.fetch(bucket.first, bucket.last)
        self._sent_as.update(written)
        self.ask(self.method.launch, number, self._samples, self._first_rate)

    def before_step(self, samples: int, rate: float, members: Collection[int]) -> Turn:
        if self.driver.finished:
            raise Stopping  # it came when all was over
        postponed, self._postponed = self._postponed, {}
        for number, written in postponed.items():
            self._send(number, written)
        self.watch.reached(1.0)
        self.watch.charge("compute")
        self._prepare_turn(members)
        yield from self.turn(self.driver.gathered or samples)
        self._impose()
        self._step_others(members)

    def after_step(self, samples: int, rate: float) -> Turn:
        yield from self.driver.make_up()
        self.replica.update_sketch()

    def turn(self, samples: int) -> Turn:
        """Average the gradients with those of the others."""
        return self.driver.turn(samples, self._first_rate) if self._torch is None else self._torch.turn(samples)

    def _prepare_turn(self, members: Collection[int]) -> None:
        if self._buckets is not None:
            self._buckets.disarm()
            self._check_unchanged()
        self._wish(members)

    def _impose(self) -> None:
        """Make the mean what the optimizers see, after a turn: its norm, and the numbers that were agreed upon."""
        self.local.scale = 1.0
        self._clip()
        by = self.method_state.short
        if self.scaling is not None:
            by *= self.scaling.factor(self.method_state.workers)  # of the round: the same at all workers
        for wish, settings in zip(self.local.wishes, self._settings, strict=True):
            if wish.share:
                settings.impose(settings.scaled(wish.numbers, by))

    def _step_others(self, members: Collection[int]) -> None:
        """Make the steps that are due after a turn, but for those of ``members``: the script makes them."""
        due = [number for number in self._all if self.local.wishes[number].share and number not in members]
        self.stepping_itself = True
        try:
            for number in due:
                members_of(self._optimizer)[number].step()
        finally:
            self.stepping_itself = False
            self.local.take_back()

    def _clip(self) -> None:
        """Clip the mean gradient, everywhere alike."""
        if self.method_state.clip_norm:
            import torch

            shares = [self.local.wishes[owner].share for owner in self.local.owners]
            exchanged = [each for each, share in zip(self.replica.params.parameters, shares, strict=True) if share]
            if self.member is None:
                torch.nn.utils.clip_grad_norm_(exchanged, self.method_state.clip_norm)
            else:
                self.member.clip(exchanged, self.method_state.clip_norm, self.catch_up)
        self.method_state.clip_norm = 0.0

    def _written(self, number: int) -> int:
        """Return how often this gradient has been written to."""
        gradient = self.replica.params.parameters[number].grad
        return -1 if gradient is None else gradient._version

    def _check_unchanged(self) -> None:
        sent, self._sent_as = self._sent_as, {}
        changed = [number for number, version in sent.items() if self._written(number) != version]
        if changed:
            raise Misuse(
                f"the gradient of {self.replica.params.names[changed[0]]!r}, changed between backward and the step",
                "gradients as backward left them, since they were sent already",
                "use loss.backward() there, or worker.step(loss, clip_norm=...)",
            )

    def fetch(self, samples: int) -> None:
        for bucket in self.method_state.buckets:
            if not bucket.launched:
                self.local.fetch(bucket.first, bucket.last)
        coder = self.local.coder
        if coder is not None and isinstance(self.method_state.buckets[0].machine, CompressedGroup):
            self.watch.charge("merge")
            coder.prepare(self.local.x, samples)

    # --------------------------------------------------------------------------------------------- own turns

    def own_turn(self, samples: int) -> Turn:
        """Take a turn, and make the optimizer's step if any worker had data. Without samples, the gradients that the
        script's loop has gathered so far are laid aside meanwhile."""
        self.before_own_turn()
        parameters, driver = self.replica.params.parameters, self.driver
        aside = [parameter.grad for parameter in parameters]
        gathered = driver.gathered, driver.micro_batches, self.local.scale
        if not samples:
            self._clear()
        self._prepare_turn(self._all if samples else ())
        yield from self.turn(samples)
        self._impose()
        if self.method_state.rate is not None:
            self._step_others(())
            self.watch.charge("merge")
        if not samples:
            for parameter, gradient in zip(parameters, aside, strict=True):
                parameter.grad = gradient
            driver.gathered, driver.micro_batches, self.local.scale = gathered

    def finish(self) -> None:
        if not self.driver.gathered:
            self._clear()
        self.run(self.driver.finish())
        self._clear()
        self.abandon()

    def abandon(self) -> None:
        if self._buckets is not None:
            self._buckets.close()

    def _clear(self) -> None:
        for parameter in self.replica.params.parameters:
            parameter.grad = None
