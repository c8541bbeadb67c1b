"""The state of a newcomer in the runtime (``strategies/allreduce/state_transfer.py``): give ours, take another's.

Both happen in the training thread: a state is given while this worker waits in its turn, so that the weights and the
optimizer are those after the last round; it is taken over before the first step, or in a turn.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from taut.errors import MalformedMessage, RunFailed
from taut.worker.model.snapshot import pack, unpack
from taut.worker.model.training_state import load_training, pack_training

if TYPE_CHECKING:
    import torch

    from taut.worker.exchange.gradients import GradientExchange

log = logging.getLogger("taut")
STATES = 8  # times the weights and buffers: no optimizer's state is larger


class NewcomerState:
    """Of the worker whose ``exchange`` this is. ``also``: what the script named, beside model and optimizer."""

    def __init__(self, exchange: GradientExchange) -> None:
        self.exchange = exchange
        self.also: Mapping[str, Any] = {}
        self._starting = False
        self._why = ""  # nobody could give it
        self._schedule: bytes | None = None  # what came, until the first batch is at hand

    def start(self) -> None:
        """Wait for the state, where this worker lacks it."""
        exchange, params = self.exchange, self.exchange.replica.params
        still_nbytes = len(params.still_bytes())
        exchange.method_state.transfer.limit_nbytes = STATES * (4 * params.size + still_nbytes) + (256 << 20)
        if not exchange.method.bare(exchange.method_state):
            return
        self._starting, began_s = True, exchange.comm.clock.now()
        exchange.run(exchange.driver.await_state())
        self._starting = False
        log.info("the run's state was here after %.2f s", exchange.comm.clock.now() - began_s)

    def serve(self, optimizer: torch.optim.Optimizer) -> None:
        """Give the state to each newcomer that is due for it, and take over the state that came."""
        exchange = self.exchange
        method, state = exchange.method, exchange.method_state
        takers = exchange.look(method.takers)
        if takers:
            data = self._packed(optimizer)
            for rank in takers:
                exchange.ask(method.give, rank, data)
            log.info("gave of the run's state (%.1f MB) to %s", len(data) / 1e6, ", ".join(map(str, takers)))
        came = exchange.look(lambda state: method.handed(state, self._starting))
        if came is not None:
            self._take_over(came, optimizer)
        if exchange.look(method.state_lost):
            unread = "nothing that others gave could be read" if state.transfer.refused else ""
            why = self._why or unread or "everybody who had it is gone"
            raise RunFailed(f"this worker cannot get the run's state: {why}")

    def _packed(self, optimizer: torch.optim.Optimizer) -> bytes:
        """Return this worker's state for a newcomer; nothing where a part of it cannot be handed on: the newcomer ends
        then, and the run must not."""
        try:
            training = pack_training(optimizer, self.also)
        except Exception as error:  # the script's own ``state_dict`` may raise anything
            log.warning("a newcomer could not be given this worker's state: %s", error)
            return b""
        return pack(replace(self.exchange.comm.complement(self.exchange.replica.state()), training=training))

    def _take_over(self, came: bytes, optimizer: torch.optim.Optimizer) -> None:
        exchange = self.exchange
        state = exchange.method_state
        if not came:
            self._why = "the others have an optimizer, or something in join(also=...), whose state cannot be handed on"
            exchange.ask(exchange.method.refuse)
            return
        try:
            given = unpack(came)
            votes = load_training(given.training, optimizer, self.also)
            exchange.replica.join(given, workers=2)
        except MalformedMessage as error:
            assert state.transfer.lead is not None
            exchange.comm.rejections.add(state.transfer.lead, str(error))
            exchange.ask(exchange.method.refuse)
            return
        if self._starting and votes:
            self._schedule = bytes(given.training)
        exchange.took_over(given)
        exchange.ask(exchange.method.took, votes)

    def at_batch(self, optimizer: torch.optim.Optimizer) -> None:
        """Load the schedule again at the first batch: a loop over epochs may have moved it on the way here."""
        data, self._schedule = self._schedule, None
        if data is not None:
            load_training(data, optimizer, self.also, again=True)
