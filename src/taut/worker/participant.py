"""A worker's place in a run of one or of many: its rank, its model and optimizer, what it follows from phase to phase.

Nothing here makes a step or reads data: ``session_worker.py`` does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.core.messages import EndRun, Message, Statistics
from taut.errors import Misuse
from taut.worker.data.loops import DataLoops
from taut.worker.metric_log import MetricLog
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.growth import Growth
from taut.worker.model.master_weights import MasterWeights
from taut.worker.model.model_checks import HALVES, ModelGuard, check_model
from taut.worker.optimizer.local_step import LastLoss
from taut.worker.optimizer.loss_scaling import LossScaling
from taut.worker.optimizer.step_hooks import OptimizerSteps
from taut.worker.session import WorkerSession
from taut.worker.time_split import Stopwatch
from taut.worker.validation import Validation

if TYPE_CHECKING:
    import torch
    from torch import nn

    from taut.worker.checkpoints.checkpointer import Checkpointer
    from taut.worker.data.batches import Share
    from taut.worker.evaluation import Evaluation
    from taut.worker.exchange.base import Exchange


class Participant(ABC):
    """What a worker is in its run, whatever it trains and on what data."""

    _closed = True  # until it is made
    _evaluation: Evaluation | None = None

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        session: WorkerSession | None,
        seed: int,
        validation: Validation | None = None,
        also: Mapping[str, Any] | None = None,
        params: FlatParams | None = None,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self._validation = validation or Validation()
        self.score: float | None = None
        self._session = session  # None: a run of one, without any ceremony
        self._member = session.member if session else None  # of an island; None: this worker is one process
        self._data = DataLoops(self, session, seed)
        self._ended = False  # by the script, of a worker alone
        self._closed = False
        self._keeper: Checkpointer | None = None
        self.steps = self.samples = 0
        self.scaling = LossScaling()
        self._loss = LastLoss(self)
        self._metrics = MetricLog(self._say)
        self._given_samples = 0
        self._trained = check_model(model, optimizer)
        self._own_params = params
        self._guard = ModelGuard(model, optimizer, self._trained)
        self._hooks = OptimizerSteps(self, session, self._guard)
        self._masters = _masters(session.params if session else params, session.seed if session else seed)
        self._masters.attach(optimizer)  # after the hooks, so that closures and gradients are there before a step
        self.watch = session.watch if session else Stopwatch()
        if session:
            session.statistics = self.statistics
            session.also = also or {}
            try:
                self._check_strategies(session)
                session.attach(optimizer)
                session.train()
            except BaseException as error:  # an optimizer that does not go with the strategy: the others must be told
                self.fail(error)
                raise
            self._follow(session)
            session.returned = self._came_back
        self._masters.refresh()
        self._meet_exchange()
        self._keeper = self._keep(session, also or {}) if session else None
        self._evaluation = self._evaluates(session) if session else None
        if self._member is not None:
            self._member.share()

    def _check_strategies(self, session: WorkerSession) -> None:  # noqa: B027
        """Raise ``Misuse`` where this worker cannot follow one of the run's strategies."""

    def _keep(self, session: WorkerSession, also: Mapping[str, Any]) -> Checkpointer | None:
        """Return the checkpointer, where the run has checkpoints or continues one."""
        settings = session.settings
        folder, resumed = settings.get("checkpoints"), settings.get("resume")
        if not folder and not resumed:
            return None
        from taut.worker.checkpoints.checkpointer import Checkpointer

        try:
            session.keeper = Checkpointer(self, session, Path(folder) if folder else None, also)
        except BaseException as error:
            self.fail(error)
            raise
        if resumed:
            self._data.dealer.complete = resumed.get("complete", 0)
        return session.keeper

    def _evaluates(self, session: WorkerSession) -> Evaluation | None:
        """Return the evaluations in the course of the run, where the run has some."""
        interval = session.settings.get("validate_every")
        if not interval:
            return None
        from taut.worker.best_model import place_of
        from taut.worker.evaluation import Evaluation

        virtual = self.watch.virtual
        best = None if virtual else place_of(session.settings.get("best_model"), session.run)
        try:
            return Evaluation(self._validation, interval, session.say, session.comm.clock, best, beside=not virtual)
        except BaseException as error:
            self.fail(error)
            raise

    @property
    def resumed(self) -> bool:
        """Return whether this run continues from a checkpoint, and this worker from where one left off: ``steps`` says
        where."""
        return self._keeper is not None and self._keeper.resumed is not None

    def progress(self) -> Mapping[int, int]:
        """Return how many samples are trained on, of each lease that is begun."""
        return self._data.dealer.progress

    def own_position(self) -> list[int]:
        """Return how many passes over its own data this worker has made, and the samples of the next one."""
        return self._data.own.position()

    def begin_own_at(self, complete: int, samples: int) -> None:
        """Begin its own data where a checkpoint left off."""
        self._data.own.begin_at(complete, samples)

    def _came_back(self) -> None:
        """Follow the session, which has another rank in the run."""
        assert self._session is not None
        self._follow(self._session)
        self._meet_exchange()

    def _follow(self, session: WorkerSession) -> None:
        session.phases.changed, session.phases.taken_over = self._meet_exchange, self._take_weights
        session.phases.grown = self._adopt

    def _meet_exchange(self) -> None:
        """Prepare for the exchange of a new phase, or the first one."""
        if self._session is not None:
            self._session.exchange.member = self._member
        self._hooks.renew()

    def _take_weights(self) -> None:
        self._hooks.renew()

    def _grow(self, growth: Growth) -> None:
        """Go on with a grown model: at once where this worker is alone, else together with the others."""
        self.check_open("grow")
        if self._member is not None:
            raise Misuse("worker.grow in an island", "a run without islands", "see docs/growing.md")
        if self._data.reading:
            remedy = "call it when the loop over worker.batches is over, on every worker"
            raise Misuse("worker.grow inside of a loop over worker.batches", "a call between two loops", remedy)
        if self._data.rounds_made is not None:
            raise Misuse(
                "worker.grow in a script with worker.rounds", "one of them", "let all rounds train the large model"
            )
        self._guard.check_modules()
        self.exchange_if_forgotten()
        self._loss.read()
        self._before_change()
        if self._session is not None:
            self._session.grow(growth)
            return
        halves = any(each.dtype in HALVES for each in growth.trained)
        growth.apply(self._masters.rounding if halves else None, self._own_params)
        self._adopt(growth)

    def _adopt(self, growth: Growth) -> None:
        """Take the grown model and its optimizer in the place of those before."""
        self._hooks.close()
        self._masters.close()
        self.model, self.optimizer, self._trained = growth.model, growth.optimizer, list(growth.trained)
        self._own_params = growth.params
        self._guard = ModelGuard(self.model, self.optimizer, self._trained)
        self._hooks = OptimizerSteps(self, self._session, self._guard)
        self._masters = _masters(growth.params, self._data.dealer.seed)
        self._masters.attach(self.optimizer)
        self._masters.refresh()
        if self._session is not None:
            self._session.adopt(growth)
        if self._keeper is not None:
            self._keeper.adopt(growth)

    @property
    def closed(self) -> bool:
        """Return whether this worker has left the run, however it did."""
        return self._closed

    def check_open(self, call: str) -> None:
        """Raise ``Misuse`` where the training is over."""
        if self._closed:
            given = f"worker.{call}() after the end of the training"
            raise Misuse(given, "a worker that is open", "call it within the `with` block of taut.join")

    @property
    def rank(self) -> int:
        return self._session.comm.rank if self._session else 0

    @property
    def workers(self) -> int:
        return self._session.comm.workers if self._session else 1

    @property
    def stopping(self) -> bool:
        """Return whether the run is being drained: finish what you are at."""
        return self._ended if self._session is None else self._session.stopping

    def end_run(self, reason: str = "") -> None:
        """End the run in order, for all workers: ``if worker.loss < 0.01: worker.end_run("good enough")``.

        The main worker's word counts (``is_main``), since every worker sees other losses; on another worker this does
        nothing. ``batches`` and ``rounds`` end soon after; a loop without them looks at ``stopping``. Where the process
        of the main worker dies before it is heard, the next main worker decides."""
        if self._member is not None:
            raise Misuse("worker.end_run in an island", "a run without --island", "break the loop in all processes alike")
        if self._session is None:
            self._ended = True
        elif self.is_main:
            self._session.say(EndRun(str(reason)[:4000]))

    @property
    def is_main(self) -> bool:
        """Return whether this worker has the lowest rank of those in the run: the one to print and to save.

        Where that worker dies or leaves, the next one takes over as soon as it hears of that. So for a moment there may
        be none; and two, while a worker that was given up has not noticed. Of an island it is process 0."""
        if self._member is not None and self._member.group.rank:
            return False
        roster = self._session.comm.status.roster if self._session else None
        return roster is None or self.rank <= min((member.rank for member in roster.members), default=self.rank)

    @property
    def loss(self) -> float | None:
        """Return the loss of the last step. Where it is on a GPU, this waits for it."""
        return self._loss.read()

    @loss.setter
    def loss(self, value: float | None) -> None:
        self._loss.value = value

    def print(self, *values: object, **options: Any) -> None:
        """Print, on the main worker only."""
        if self.is_main:
            print(*values, **options)

    @property
    def figures(self) -> dict[str, float]:
        """Return what the strategy counts at this worker: under ``sync:backup=1``, say, the gradients that were
        dropped."""
        return self._session.exchange.figures() if self._session else {}

    @abstractmethod
    def exchange_if_forgotten(self) -> None:
        """Make the exchange that the script does not ask for, after its own ``optimizer.step()``."""

    @abstractmethod
    def next_batch(self, batches: Iterator[Any], accumulating: bool) -> Any:
        """Read a batch, between two steps; return ``NO_MORE`` at the end, or where the run is stopping."""

    @abstractmethod
    def count_trained(self, share: Share) -> int:
        """Note that the oldest batch at hand was trained on; return how many samples it had."""

    @abstractmethod
    def step_weight(self) -> tuple[int, float]:
        """Return the samples and the learning rate of the step that is being made, where the exchange asks for them."""

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """End by an error: the others are told, and go on."""

    @abstractmethod
    def _before_change(self) -> None:
        """Complete a checkpoint's copy of the weights: they may change now."""

    def exchange_now(self) -> Exchange | None:
        """Return the exchange of the present phase, in a run of several."""
        return self._session.exchange if self._session is not None else None

    def log(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Log numbers and images of your own under names: ``worker.log(accuracy=0.97)``. The run keeps them with this
        worker's rank and step, and shows them wherever it shows the loss. A script alone keeps nothing.

        An image is a matplotlib figure, a PIL image or an array of pixels (bytes, or floats from 0 to 1)."""
        self._metrics.log(self.steps, {**(values or {}), **named})

    def _say(self, message: Message, payloads: Sequence[bytes]) -> None:
        if self._session is not None and not self._closed:
            self._session.comm.say(message, payloads)

    def statistics(self) -> Statistics:
        """Return what this worker did so far."""
        split: dict[str, Any] = {f"{kind}_s": seconds for kind, seconds in self.watch.seconds.items()}
        mine = Statistics(self.steps, self.samples, self._loss.value, wall_s=self.watch.wall_s, **split)
        mine = self._data.noted(mine)
        return self._session.add_statistics(mine) if self._session else mine


def _masters(params: FlatParams | None, seed: int) -> MasterWeights:
    """Return the masters of a model's parameters of half precision; of none, where there is no flat vector."""
    import torch

    masters = params.masters if params is not None else MasterWeights(torch.empty(0), [])
    masters.seed = seed
    return masters
