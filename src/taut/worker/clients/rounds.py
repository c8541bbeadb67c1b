"""Rounds of clients (``worker.rounds``): each round, this worker trains its part of the drawn clients, one after the
other, each from the round's first weights with a fresh optimizer, and all workers take the mean (``fedavg``).

A client that is dropped, or was trained on no sample, does not count. A worker that dies takes the clients of the round
with it that it had: the others complete the round without them. Beside the weights, buffers (of batch norm) begin anew
with each client; their mean is this worker's, and all workers' at the end of the run. A script alone trains all clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from taut.core.messages import Statistics
from taut.errors import Misuse
from taut.strategies.periodic.client_rounds import ClientPart, ClientRound, dealt, drawn_clients
from taut.strategies.periodic.fedavg import FedAvg
from taut.worker.clients.accountant import epsilon
from taut.worker.clients.client import Client
from taut.worker.clients.client_mean import ClientMean
from taut.worker.clients.client_updates import NoisySum
from taut.worker.clients.trainer import Trainer

Parts = Sequence[Any] | Callable[[int], Any]


class Round(Iterator[Client]):
    """One round. ``number``: from 0; ``clients``: those that this worker trains. Read as an iterator it gives each of
    them, and ends when the model is the round's mean."""

    def __init__(self, trainer: Trainer, method: FedAvg, drawn: ClientRound, load: Callable[[int], Any]) -> None:
        self.number, self.clients, self.over = drawn.number, drawn.mine, False
        self._trainer, self._load = trainer, load
        self._state = trainer.state
        self._left = list(drawn.mine)
        self._method = method
        self._mean = ClientMean(trainer.weights, trainer.buffers, math.inf if method.noise else method.clip)
        self._sum = NoisySum(trainer.weights, method.clip) if method.noise else None
        self._client: Client | None = None
        self._trained: list[int] = []

    def __repr__(self) -> str:
        return f"<round {self.number} with clients {', '.join(map(str, self.clients)) or 'of other workers'}>"

    def __next__(self) -> Client:
        self._end_client()
        if self.over or not self._left or self._cut_short:
            self.complete()
            raise StopIteration
        self._mean.restart()
        self._trainer.moved()
        self._trainer.renew_optimizers()
        number = self._left.pop(0)
        self._client = Client(self._trainer, number, self._load(number), self.number)
        return self._client

    def complete(self) -> None:
        """Give this worker's part to the round, and take the mean of all. Clients that are left do not count."""
        self._end_client()
        if self._cut_short:
            self.abandon()
        if self.over:
            return
        self.over = True
        part = self._part()
        self._trainer.moved()
        if self._trainer.session is not None:
            self._trainer.exchange.look(lambda state: self._method.give(state, part))
            self._trainer.take_turn()

    def _part(self) -> ClientPart:
        """Return what this worker gives to the round, with the weights that go with it in the model."""
        if self._sum is None:
            return ClientPart(float(self._mean.write()), tuple(self._trained))
        self._mean.restart()
        share = 1.0 / self._trainer.members
        noisy = self._sum.with_noise(self._method.noise * self._method.clip * math.sqrt(share))
        return ClientPart(1.0, tuple(self._trained), noisy, share)

    def abandon(self) -> None:
        """Go back to the weights that the round began with: this worker gives nothing to it."""
        if not self.over and self._trainer.state is self._state:  # else the worker has rejoined, with the others' weights
            self._mean.restart()
            self._trainer.moved()
        self.over = True

    @property
    def _cut_short(self) -> bool:
        return self._trainer.worker.stopping or self._trainer.state is not self._state

    def _end_client(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        self._trainer.worker.exchange_if_forgotten()
        if client.samples and not (client.dropped or self._cut_short):
            self._trainer.read()
            if self._sum is None:
                self._mean.add(client.samples)
            else:
                self._sum.add()
            self._trained.append(client.number)


class Rounds(Iterator[Round]):
    """The result of ``worker.rounds``: the rounds up to ``wanted`` that the run has not made yet; ``made``: how many it
    has."""

    def __init__(self, trainer: Trainer, parts: Parts, wanted: int) -> None:
        if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
            raise Misuse(f"worker.rounds(..., rounds={wanted!r})", "a whole number of at least 1")
        self.wanted, self.made = wanted, 0
        self._trainer = trainer
        self._round: Round | None = None
        self._accounted: Mapping[float, int] = {}  # the rounds that the last epsilon is of
        self._method = _checked(trainer.method(), parts)
        self._load: Callable[[int], Any] = parts if callable(parts) else parts.__getitem__

    def __len__(self) -> int:
        return self.wanted

    def __next__(self) -> Round:
        if self._round is not None:
            self._round.complete()
        drawn = self._open()
        self.made = drawn.number
        if drawn.number >= self.wanted or self._trainer.worker.stopping:
            self.close()
            raise StopIteration
        self._round = Round(self._trainer, self._method, drawn, self._load)
        return self._round

    def _open(self) -> ClientRound:
        """Return the next round, once all workers agree on its number."""
        trainer, method = self._trainer, self._method
        if trainer.session is None:
            number = 0 if self._round is None else self._round.number + 1
            drawn = drawn_clients(method.clients, method.fraction, method.seed, number)
            return ClientRound(number, drawn, dealt(drawn, (0,), 0))
        trainer.enter()
        trainer.exchange.look(method.open)
        trainer.take_turn()
        return trainer.exchange.look(method.round_of)

    def close(self) -> None:
        """Abandon the round that is under way, if there is one; say what the run's noise comes to."""
        if self._round is not None:
            self._round.abandon()
            if self._method.noise:
                self._account()

    def _account(self) -> None:
        method, exchange = self._method, self._trainer.exchange
        rounds = exchange.look(lambda state: dict(state.ledger.rounds))
        if rounds and rounds != self._accounted:
            self._accounted, found = rounds, epsilon(rounds, method.fraction, method.delta)
            exchange.look(lambda state: setattr(state.ledger, "epsilon", found))
            self._trainer.worker.log(epsilon=found)

    def noted(self, made: Statistics) -> Statistics:
        """Return the statistics with the rounds, for the progress of the run."""
        return msgspec.structs.replace(made, own_passes=self.made, own_wanted=self.wanted)


def _checked(method: FedAvg | None, parts: Parts) -> FedAvg:
    """Return the strategy, with as many clients as there are parts; a run's, or one of a worker alone."""
    given = None if callable(parts) else len(parts)
    if method is None:
        if given is None:
            remedy = "run it with `taut run --clients 100`, or give a list with an entry for each client"
            raise Misuse("worker.rounds with a function, in a script alone", "to know how many clients there are", remedy)
        method = FedAvg(fraction=1.0, clients=given)
    if not method.clients or given not in (None, method.clients):
        expected = f"{method.clients}, as --clients says" if method.clients else "at least one"
        raise Misuse(f"worker.rounds with the data of {given} clients", expected, f"run it with --clients {given or 100}")
    return method
