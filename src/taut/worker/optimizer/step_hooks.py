"""Hooks around the steps of the optimizers that were joined.

Gradients are exchanged before a step if the strategy asks for that, and changes by the script between steps are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from taut.errors import Misuse
from taut.worker.model.hand_made import is_inline
from taut.worker.model.model_checks import ModelGuard, WeightSample
from taut.worker.optimizer.joined import members_of
from taut.worker.optimizer.scaled_rates import ScaledRates

if TYPE_CHECKING:
    from taut.worker.participant import Participant
    from taut.worker.session import WorkerSession

ONE_EVALUATION = ("torch.optim.", "taut.optim.")  # optimizers that call a closure once, before they do anything


class OptimizerSteps:
    """The hooks of ``worker``; ``session``: in a run of several, if it is in one."""

    def __init__(self, worker: Participant, session: WorkerSession | None, guard: ModelGuard) -> None:
        self._worker, self._session, self._guard = worker, session, guard
        self._sample: WeightSample | None = None
        self._overflow = False  # the gradients of the step of ``worker.step`` do not count
        self._stepping: range | None = None  # the optimizers whose steps ``worker.step`` makes, until they have exchanged
        self._unexchanged: set[int] = set()  # the optimizers that the script stepped since the last exchange
        self._script_exchanges = False  # the script calls ``worker.step`` or ``worker.exchange``
        self._rates = [ScaledRates(member) for member in members_of(worker.optimizer)]
        self.rate_factor = 1.0  # by which the learning rates of the last step were scaled, but for those of a round
        self._inline = is_inline(worker.optimizer)
        self._handles: list[Any] = []
        for number, member in enumerate(members_of(worker.optimizer)):
            after = [member.register_step_post_hook(partial(self._after, number))]
            before = member.register_step_pre_hook(partial(self._before, number, after))
            self._handles += [after, [before]]

    def close(self) -> None:
        """Remove the hooks: the optimizers are the script's alone."""
        for handles in self._handles:
            handles[0].remove()

    def renew(self) -> None:
        """Take the weights as they are: a strategy begins, or the run's state was taken over."""
        sampled = self._session is not None and self._session.exchange.exchanges_gradients
        self._sample = WeightSample(self._session.params.vector) if sampled and self._session is not None else None

    def exchanging(self, asked: bool = True) -> None:
        """Raise ``Misuse`` if the weights cannot be exchanged now. ``asked``: by the script."""
        self._script_exchanges |= asked
        self._unexchanged.clear()
        self._guard.check()
        if self._sample is not None:
            self.check_weights()

    def check_weights(self) -> None:
        """Raise ``Misuse`` if the script moved weights where only the optimizer's step may."""
        if self._sample is not None and self._session is not None:
            self._session.params.masters.take_changes()
            self._sample.check()

    @property
    def forgotten(self) -> bool:
        """Return whether the script makes steps, and has never asked for an exchange."""
        if self._script_exchanges or self._stepping is not None:
            return False
        return bool(self._unexchanged) or (self._inline and self._guard.has_gradients())

    def _before(self, number: int, after: list[Any], optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        self._guard.begin()
        worker, session = self._worker, self._session
        itself = session is not None and session.exchange.stepping_itself
        if number in self._unexchanged and not itself:  # of several optimizers, each makes its step before one exchange
            worker.exchange_if_forgotten()
        if session is None:
            return None
        if next(reversed(optimizer._optimizer_step_post_hooks)) != after[0].id:
            after[0].remove()
            # again, so that it comes after hooks of the script, which may move weights
            after[0] = optimizer.register_step_post_hook(partial(self._after, number))
        given = None if itself else self._evaluated(optimizer, args, kwargs)
        if session.keeper is not None:
            session.keeper.before_step()
        if itself or worker.closed:
            return given
        members = range(number, number + 1) if self._stepping is None else self._stepping
        if self._stepping is not None:
            self._stepping = range(0)  # the first of the optimizers exchanges for all
        self.rate_factor = self._factor()
        if members:
            if self._sample is not None:
                self.check_weights()
            entered = session.enter()  # then the gradients are of other weights than those that this worker has now
            if self._overflow:
                session.exchange.drop_gradients()
            none = entered or self._overflow
            samples, rate = worker.step_weight()
            session.before_step(0 if none else samples, rate, members)
        self._rates[number].scale(self.rate_factor)
        return given

    def _factor(self) -> float:
        """Return by what to scale the learning rates of a step: by the workers that this one knows of, and by what the
        run's owner says. Where gradients are exchanged, the exchange scales, by the workers of the round."""
        exchange = self._worker.exchange_now()
        if self._session is None or exchange is None or exchange.exchanges_gradients:
            return 1.0
        scaled = 1.0 if exchange.scaling is None else exchange.scaling.factor(self._worker.workers)
        return scaled * self._session.rate

    def begin_step(self, overflow: bool) -> None:
        """Note that ``worker.step`` makes the steps of all optimizers now. ``overflow``: its gradients are not finite."""
        self._overflow = overflow
        self._stepping = range(len(members_of(self._worker.optimizer)))

    def end_step(self) -> None:
        """Note that the steps of all optimizers are made."""
        self._overflow = False
        self._stepping = None

    def _after(self, number: int, *_: Any) -> None:
        self._rates[number].restore()
        if self._session is None or not self._session.exchange.stepping_itself:
            self._unexchanged.add(number)
        if self._sample is not None:
            self._sample.renew()

    def _evaluated(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        """Call the closure now, if gradients are exchanged before the step; return arguments with its loss instead."""
        closure: Callable[[], Any] | None = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None or self._session is None or not self._session.exchange.exchanges_gradients:
            return None
        if not type(optimizer).__module__.startswith(ONE_EVALUATION):
            raise Misuse(
                f"{type(optimizer).__name__}.step(closure) under sync",
                "gradients that are there before the step",
                "call loss.backward(), then optimizer.step() without a closure; or take another strategy, such as async",
            )
        with torch.enable_grad():
            loss = closure()
        return (optimizer,), {"closure": lambda: loss}
