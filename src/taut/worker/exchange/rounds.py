"""Methods in the runtime: what the turns of ``round_driver.py`` need of the communication thread and the replica. The
vector is the weights (``weights.py``) or the gradients (``gradients.py``)."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from taut.collectives.wire import WIRES
from taut.core.staleness_counts import Counts
from taut.errors import MalformedMessage
from taut.strategies.allreduce.compressed_group import pays
from taut.strategies.api import Finished, Heard, MembersChanged, Method, MethodAction, Proceed, Refuse, Tell
from taut.topologies.shape import Shape
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.run_status import RunStatus
from taut.worker.exchange.base import Exchange
from taut.worker.exchange.residual_handoff import ResidualHandoffDriver
from taut.worker.exchange.round_driver import RoundDriver
from taut.worker.exchange.turns import Turn
from taut.worker.model.replica import Replica
from taut.worker.model.vector_views import FlatParamsCodec, Gradients, Weights
from taut.worker.optimizer.joined import members_of
from taut.worker.time_split import Stopwatch

if TYPE_CHECKING:
    import torch

    from taut.strategies.allreduce.round_speeds import RoundSpeeds

Seen = TypeVar("Seen")
log = logging.getLogger(__name__)


class RoundExchange(Exchange):
    """Drives ``method`` on ``comm``, over ``local``, and is the ``RoundIO`` of its turns. All of it belongs to the
    training thread, but for a ``concurrent`` method's messages, which the communication thread hands over at once;
    ``_lock`` keeps the two apart."""

    driver: RoundDriver

    def __init__(
        self,
        method: Method,
        local: Weights | Gradients,
        replica: Replica,
        comm: CommThread,
        shape: Shape,
        watch: Stopwatch,
    ) -> None:
        self.method, self.local, self.replica = method, local, replica
        self.comm, self.shape, self.watch = comm, shape, watch
        self.version = -1
        self.now, self.charge, self.put_back = comm.clock.now, watch.charge, local.put_back
        self._lock = threading.RLock()
        self._last_figures: dict[str, float] = {}
        self._early: list[Heard] = []  # what others, who started before, told a concurrent method
        self.phase_protocol = comm.phase_protocol  # of the phase that this is the exchange of
        self.handoff = ResidualHandoffDriver(comm, self._inherit)
        if method.concurrent:
            self.phase_protocol.on_deliver = self.deliver

    @property
    def coder(self) -> FlatParamsCodec | None:
        return self.local.coder

    def start_method(self) -> None:
        """Start the method among the members that are ready, and hand over what came before."""
        membership = self.comm.dispatcher.membership(self.shape, self.phase_protocol.phase)
        self.version = membership.version
        self._say_if_dense()
        with self._lock:
            self.method_state = self.method.start(membership, self.local)
            while self.phase_protocol.on_deliver is not None and self.phase_protocol.mail:  # it came before the rest
                self.phase_protocol.on_deliver(self.phase_protocol.take_mail())
            for item in self._early:
                self.deliver(item)
            self._early.clear()

    def _say_if_dense(self) -> None:
        """Warn once of a codec that was asked for and would not pay."""
        coder = self.local.coder
        if coder is None or not self.method.summed_numbers or pays(coder.bits, coder.workers):
            return
        log.warning(
            "codec %s does not pay: %.3g bits per element times %d workers, where a ring of float32 takes 64. "
            "%s are summed in the ring, which sends %s (docs/sync.md)",
            coder.name,
            coder.bits,
            coder.workers,
            self.method.vector.capitalize(),
            coder.name if coder.name in WIRES and self.method.vector == "gradients" else "float32",
        )

    def check_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Raise ``Misuse`` for an optimizer that does not go with the method."""
        for member in members_of(optimizer):
            for group in member.param_groups:
                settings = {name: value for name, value in group.items() if name != "params"}
                self.method.check_optimizer(type(member).__name__, settings)

    @property
    def shares_speeds(self) -> bool:  # type: ignore[override]
        return self.method_state is not None and self.method.shares_speeds

    def share_speed(self, global_batch: int, speed: float) -> RoundSpeeds | None:
        return self.take_speeds(speed)

    def take_speeds(self, speed: float) -> RoundSpeeds | None:
        """Note this worker's speed for the next round; return those of the last one, once."""
        if not self.shares_speeds:
            return None
        self.method_state.speed = speed
        speeds: RoundSpeeds | None = self.method_state.speeds
        self.method_state.speeds = None
        return speeds

    # -------------------------------------------------------------------------------------------------- turns

    def run(self, turn: Turn) -> None:
        self.comm.run_turn(turn, self.watch)

    def wait(self, until: Callable[[RunStatus], bool], again: Callable[[], None]) -> None:
        self.comm.run_turn(self.driver.wait(lambda: until(self.comm.status)), None, again)

    def finish(self) -> None:
        self.run(self.driver.finish())

    def leave(self) -> None:
        if self.method_state is not None:
            self.run(self.driver.leave())

    def idle(self) -> None:
        before = self.included
        self.catch_up()
        if self.included != before and not self.driver.finished:
            self.put_back()  # else what a method that never waits was told now would be gone with the next fetch

    @abstractmethod
    def own_turn(self, samples: int) -> Turn: ...

    @abstractmethod
    def fetch(self, samples: int) -> None: ...

    @abstractmethod
    def catch_up(self) -> None: ...

    def hear(self) -> None:
        """Tell the method what has come, and who is here; give the weights to a newcomer that asks for them."""
        roster = self.comm.status.roster
        if self.method_state is not None and roster is not None and roster.stamp != self.version:
            self.version = roster.stamp
            self.ask(
                self.method.on,
                MembersChanged(self.comm.dispatcher.membership(self.shape, self.phase_protocol.phase)),
                self.now(),
            )
        while self.phase_protocol.mail and self.method_state is not None:  # before the start it waits
            self.deliver(self.phase_protocol.take_mail())
        if self.comm.transfer.wanted and self.phase_protocol is self.comm.phase_protocol:  # not of a phase that is over
            shown = None if self.method_state is None else self.look(self.method.shown)
            self.comm.grant(self.replica.state(shown), {})

    @property
    def over(self) -> bool:
        return self.comm.status.over(self.phase_protocol.phase)

    @property
    def leaving(self) -> bool:
        return self.comm.status.leave is not None

    def owing(self) -> bool:
        return self.look(self.method.owing)

    def hand_off(self) -> Turn:
        holder = self.replica if self.method.streams else self.local.coder
        if holder is not None:
            neighbours = self.comm.dispatcher.membership(self.shape, self.phase_protocol.phase).neighbours()
            yield from self.handoff.hand_on(holder.residual_parts(), neighbours, self.idle)

    def pass_on(self) -> Turn:
        self.comm.pass_on(self.idle)
        yield from ()

    def _inherit(self, part: bytes) -> None:
        holder = self.replica if self.method.streams else self.local.coder
        if holder is None:
            raise MalformedMessage("a residual, in a run whose updates are dense")
        holder.inherit(part)

    # ---------------------------------------------------------------------------------------------- the method

    def look(self, at: Callable[[Any], Seen]) -> Seen:
        """Return what ``at`` finds in the method's state, while the state does not change."""
        with self._lock:
            return at(self.method_state)

    def ask(self, what: Callable[..., list[MethodAction]], *given: Any) -> None:
        with self._lock:
            for action in what(self.method_state, *given):
                match action:
                    case Tell():
                        self.comm.post(action, self.phase_protocol)
                    case Proceed():
                        self.driver.proceed = True
                    case Finished():
                        self.driver.finished = True
                    case Refuse(sender, why):
                        self.comm.rejections.add(sender, why)
            election = self.comm.dispatcher.election
            if election is not None:
                election.agreed = max(election.agreed, self.method.agreed(self.method_state))

    def deliver(self, item: Heard) -> None:
        """Hand a message to the method, or keep it until that has started. From any thread."""
        with self._lock:
            if self.method_state is None:
                self._early.append(item)
                return
            try:
                if self.handoff.heard(item):
                    return
                self.ask(self.method.on, item, self.now())
                self.included += 1
            except MalformedMessage as error:
                self.comm.rejections.add(item.sender, str(error))

    def unsent(self, gone: Collection[int]) -> list[Any]:
        with self._lock:
            known = self.method.returns == "sum" and self.method_state is not None
            return self.method.unsent(self.method_state, gone) if known else []

    def welcomed(self, unsent: Sequence[Any]) -> None:
        self.ask(self.method.welcomed, unsent)

    # ---------------------------------------------------------------------------------------------- figures

    @property
    def exact(self) -> bool:
        return self.method.consensus

    @property
    def sent(self) -> int:  # type: ignore[override]
        return self.driver.turns

    @property
    def staleness(self) -> float:  # type: ignore[override]
        return self.figures().get("staleness", 1.0)  # in steps, where the method measures it

    def staleness_counts(self) -> Counts:
        return () if self.method_state is None else self.method.staleness_counts(self.method_state)

    def figures(self) -> dict[str, float]:
        """Return the figures as of now, or, while the method is at work in the other thread, as of the last time."""
        if self.method_state is not None and self._lock.acquire(blocking=False):
            try:
                self._last_figures = self.method.figures(self.method_state)
            finally:
                self._lock.release()
        return self._last_figures
