"""Train the clients of a worker: its weights and optimizers, which begin anew with each client, and its turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from taut.errors import Misuse
from taut.strategies.periodic.fedavg import FedAvg
from taut.worker.clients.accountant import accounting
from taut.worker.data.batches import Share
from taut.worker.exchange.base import Exchange
from taut.worker.exchange.rounds import RoundExchange
from taut.worker.model.master_weights import MasterWeights
from taut.worker.optimizer.joined import Optimizer, members_of
from taut.worker.session import WorkerSession
from taut.worker.vector.update_function import UpdateFunction

if TYPE_CHECKING:
    from taut.worker.participant import Participant

REFUSED = {"checkpoints": "--checkpoint-every", "resume": "`taut resume`", "validate_every": "--validate-every"}
REMEDY = "`taut run --clients 100 --strategy fedavg:fraction=0.1 SCRIPT`"


def client_method(exchange: Exchange | None) -> FedAvg | None:
    """Return the strategy of a run whose workers train clients; None: of any other run."""
    method = exchange.method if isinstance(exchange, RoundExchange) else None
    return method if isinstance(method, FedAvg) and method.clients else None


def refuse_clients(exchange: Exchange | None, call: str) -> None:
    """Raise ``Misuse`` for data that no client has, in a run whose workers train clients: its rounds would never end."""
    method = client_method(exchange)
    if method is not None:
        expected = "worker.rounds, and client.batches within it"
        raise Misuse(
            f"{call} with --clients {method.clients}", expected, "leave --clients out; or see examples/federated.py"
        )


@dataclass
class Trainer:
    """``weights`` and ``buffers``: what a client moves; ``deal`` hands out the batches of a share."""

    worker: Participant
    session: WorkerSession | None  # None: the worker is alone
    masters: MasterWeights
    weights: Sequence[torch.Tensor]
    buffers: Sequence[torch.Tensor]
    seed: int
    deal: Callable[[Share, Iterator[Any]], Iterator[Any]]
    _arrays: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for member in self._optimizers:
            if isinstance(member, UpdateFunction):
                self._arrays += [(array, array.clone()) for array in member.arrays]

    @property
    def _optimizers(self) -> Sequence[Optimizer]:
        return members_of(self.worker.optimizer)

    def method(self) -> FedAvg | None:
        """Return the strategy of this worker's run; None: it is alone. Raise ``Misuse`` for one that has no clients."""
        if self.session is None:
            return None
        method = client_method(self.session.exchange)
        if method is None:
            given = f"worker.rounds under {self.session.settings.get('strategy')}"
            raise Misuse(given, "the strategy fedavg, and how many clients there are", REMEDY)
        for setting, flag in REFUSED.items():
            if self.session.settings.get(setting):
                expected = "a run without: in mid-round a worker's model is a client's"
                raise Misuse(f"worker.rounds with {flag}", expected, "leave it out")
        if self.session.member is not None:
            raise Misuse("worker.rounds in an island", "workers of one process each", "leave --island out")
        if len(self.session.phases.schedule.phases) > 1:
            raise Misuse("worker.rounds in a run of several phases", "fedavg alone", REMEDY)
        if method.noise:
            accounting()
            if self.buffers:
                given = f"fedavg:noise={method.noise:g} for a model with buffers, such as batch norm's"
                raise Misuse(
                    given, "weights alone, which the noise is added to", "torch.nn.GroupNorm instead of BatchNorm"
                )
        return method

    @property
    def exchange(self) -> RoundExchange:
        assert self.session is not None and isinstance(self.session.exchange, RoundExchange)
        return self.session.exchange

    @property
    def members(self) -> int:
        """Return how many workers share a round."""
        return 1 if self.session is None else self.exchange.look(lambda state: len(state.membership.members))

    @property
    def state(self) -> object:
        """Return the method's state: another one when the worker has rejoined."""
        return None if self.session is None else self.session.exchange.method_state

    def moved(self) -> None:
        """Note that the tensors have changed."""
        self.masters.stale = True
        self.masters.refresh()

    def read(self) -> None:
        """Bring the tensors up to date with what the script did to the model."""
        self.masters.take_changes()

    def renew_optimizers(self) -> None:
        """Let the optimizers forget the steps that they have made."""
        for member in self._optimizers:
            member.state.clear()
            member.zero_grad(set_to_none=True)
        for array, first in self._arrays:
            array.copy_(first)

    def enter(self) -> None:
        """Take part in the run from now on, where the worker came in mid-run."""
        if self.session is not None and self.session.enter():
            self.moved()

    def take_turn(self) -> None:
        """Take a turn that no step asks for."""
        if self.session is not None:
            self.session.take_turn()
            self.masters.refresh()
