"""Methods over the weights: a turn follows the optimizer's step."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from taut.errors import Misuse
from taut.worker.exchange.round_driver import RoundDriver
from taut.worker.exchange.rounds import RoundExchange
from taut.worker.exchange.turns import Turn, Wait
from taut.worker.model.vector_views import Gradients, Weights
from taut.worker.optimizer.joined import members_of, takes_sparse

if TYPE_CHECKING:
    import torch

    from taut.strategies.api import Method
    from taut.topologies.shape import Shape
    from taut.worker.comm.comm_thread import CommThread
    from taut.worker.model.replica import Replica
    from taut.worker.time_split import Stopwatch


class WeightExchange(RoundExchange):
    """Drives a method over the weights. A method that ``shapes_gradient`` also changes gradients before the step."""

    def __init__(self, method: Method, replica: Replica, comm: CommThread, shape: Shape, watch: Stopwatch) -> None:
        super().__init__(method, Weights(replica), replica, comm, shape, watch)
        self.driver = RoundDriver(method, self)
        self._gradients = Gradients(replica.params) if method.shapes_gradient else None

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        self.check_optimizer(optimizer)
        if self._gradients is not None and len(members_of(optimizer)) > 1:
            given = f"{len(members_of(optimizer))} optimizers under {self.method.name}, which changes gradients"
            raise Misuse(
                given, "one optimizer", "put its parameters into groups of one optimizer, or take another strategy"
            )
        if self._gradients is not None:
            self._gradients.sparse = takes_sparse(optimizer)

    def start(self) -> None:
        self.local.fetch()  # on a GPU, the copy is older than the run's state
        self.start_method()

    def before_step(self, samples: int, rate: float, members: Collection[int]) -> Iterable[Wait | None]:
        self.watch.reached(1.0)
        self.watch.charge("compute")
        if self._gradients is not None:
            self._gradients.fetch()
            self.method.shape_gradient(self.method_state, self._gradients.x, rate)
            self._gradients.put_back()
            self.watch.charge("merge")
        return ()

    def after_step(self, samples: int, rate: float) -> Turn:
        yield from self.driver.turn(samples, rate)
        self.replica.update_sketch()

    def own_turn(self, samples: int) -> Turn:
        self.before_own_turn()
        return self.driver.turn(samples, 0.0)

    def fetch(self, samples: int) -> None:
        self.local.fetch()

    def catch_up(self) -> None:
        self.hear()
