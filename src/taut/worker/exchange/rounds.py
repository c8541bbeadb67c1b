"""A method and its node, turn by turn: the local step is over, the method talks, the worker goes on."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from taut.core.events import Ended
from taut.errors import MalformedMessage, Misuse, SupervisorLost
from taut.strategies.api import (
    Draining,
    Finished,
    Heard,
    HeldUp,
    Leaving,
    Method,
    MethodAction,
    MethodEvent,
    Placed,
    Proceed,
    Refuse,
    Stepped,
    Tell,
)
from taut.topologies.shape import Shape
from taut.worker.comm.comm_thread import AGAIN_S, CommThread
from taut.worker.comm.run_status import RunStatus
from taut.worker.exchange.adaptive_timeout import AdaptiveTimeout
from taut.worker.exchange.base import Exchange
from taut.worker.exchange.residual_handoff import ResidualHandoffDriver
from taut.worker.model.optimizers import members_of
from taut.worker.model.replica import Replica
from taut.worker.model.vector_views import Gradients, Weights
from taut.worker.time_split import Stopwatch

if TYPE_CHECKING:
    import torch

Seen = TypeVar("Seen")


class RoundExchange(Exchange):
    """Drives ``method`` on ``node``. All of it belongs to the training thread, but for a ``concurrent`` method's
    messages, which the communication thread hands over at once; ``_lock`` keeps the two apart."""

    def __init__(self, method: Method, replica: Replica, node: CommThread, shape: Shape, watch: Stopwatch) -> None:
        self.method, self.replica, self.node, self.shape, self.watch = method, replica, node, shape, watch
        of_gradients = method.vector == "gradients"
        self.local: Weights | Gradients = Gradients(replica.arena) if of_gradients else Weights(replica)
        self._gradients = Gradients(replica.arena) if method.shapes_gradient else None
        self.proceed = True
        self.finished = False
        self._lock = threading.RLock()
        self._version = -1
        self._state: Any = None
        self._last_figures: dict[str, float] = {}
        self._early: list[Heard] = []  # what others, who started before, told a concurrent method
        self.stage = node.stage  # of the phase that this is the talk of
        self.bequest = ResidualHandoffDriver(node, self._inherit)
        self._waits = {spare: AdaptiveTimeout(steady=spare) for spare in (False, True)}
        self._wanted: Callable[[RunStatus], bool] | None = None  # what a worker without data waits for, in idle turns
        self._held: tuple[float, int, bool] | None = None  # since when, among which members, and whether it was spare
        if method.concurrent:
            self.stage.on_deliver = self._deliver

    def start(self) -> None:
        place = self.node.place(self.shape, self.stage.phase)
        self._version = place.version
        if isinstance(self.local, Weights):
            self.local.fetch()  # on a GPU, the copy is older than the run's state
        with self._lock:
            self._state = self.method.start(place, self.local)
            while self.method.concurrent and self.stage.mail:  # it came before this talk was made, and so before the rest
                self._deliver(self.stage.take_mail())
            for item in self._early:
                self._deliver(item)
            self._early.clear()

    @property
    def method_state(self) -> Any:
        """The method's own, None before the start."""
        return self._state

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        for member in members_of(optimizer):
            for group in member.param_groups:
                settings = {name: value for name, value in group.items() if name != "params"}
                self.method.check_optimizer(type(member).__name__, settings)
        if self._gradients is not None and len(members_of(optimizer)) > 1:
            given = f"{len(members_of(optimizer))} optimizers under {self.method.name}, which changes gradients"
            raise Misuse(
                given, "one optimizer", "put its parameters into groups of one optimizer, or take another strategy"
            )
        self._optimizer = optimizer

    @property
    def exact(self) -> bool:
        return self.method.consensus

    def before_step(self, samples: int, rate: float, members: Collection[int]) -> None:
        self.watch.reached(1.0)
        self.watch.charge("compute")
        if self._gradients is not None:
            self._gradients.fetch()
            self.method.shape_gradient(self._state, self._gradients.x, rate)
            self._gradients.put_back()
            self.watch.charge("merge")

    def exchange(self, samples: int, rate: float) -> None:
        self._turn(samples, rate)
        self.replica.update_sketch()

    @property
    def staleness(self) -> float:  # type: ignore[override]
        """In steps, where the method measures it."""
        return self.figures().get("staleness", 1.0)

    def figures(self) -> dict[str, float]:
        """As of now, or, while the method is at work in the other thread, as of the last time."""
        if self._state is not None and self._lock.acquire(blocking=False):
            try:
                self._last_figures = self.method.figures(self._state)
            finally:
                self._lock.release()
        return self._last_figures

    def idle(self) -> None:
        before = self.included
        self.catch_up()
        if self.included != before and not self.finished:
            self.local.put_back()  # else what a method that never waits was told now would be gone with the next fetch

    def wait(self, until: Callable[[RunStatus], bool], again: Callable[[], None]) -> None:
        if not self.method.lockstep:
            self.node.wait(until, self.idle, again)
            return
        facts, asked_s = self.node.facts, self.node.clock.now()
        self._wanted = until
        while not until(facts):
            if not self.method.drifting(self._state):  # else nobody waits for more of us than we gave
                self._idle_turn()  # the others may be waiting for our turn, and we for their leases
            if self.node.supervisor_lost():
                raise SupervisorLost("the supervisor fell silent while this worker needed an answer of it")
            self._breathe(until)
            if self.node.clock.now() - asked_s > AGAIN_S:
                again()
                asked_s = self.node.clock.now()
        self._wanted = None

    def _turn(self, samples: int, rate: float) -> None:
        """The local step is over: tell the method, and wait until it lets the worker go on."""
        self.sent += 1
        self._fetch()
        self.catch_up()
        self.watch.charge("merge")
        self.proceed = False
        self._tell(Stepped(samples, rate))
        self.watch.charge("send")
        if not self.proceed:
            self._await_turn(samples > 0)
            self.watch.charge("wait")
        self._see_drift()
        self.local.put_back()
        self.watch.charge("merge")

    def _await_turn(self, trained: bool) -> None:
        """Until the method lets the worker go on. One that can train on instead, for it has data or has got some, is told
        when what it waits for takes too long: several times what most of the last waits took."""
        facts, clock, patient = self.node.facts, self.node.clock, not self.method.drifts
        while not self._may_go_on(facts):
            began_s, version, rounds = clock.now(), self._version, self.method.rounds_over(self._state)
            spare = self.method.spare(self._state)
            due_s = math.inf if patient else began_s + self._waits[spare].too_long_s(rounds)
            self._wait_on(lambda: self._moved_on(rounds) or (clock.now() > due_s and self._can_train(trained)))  # noqa: B023
            if self.proceed or self._moved_on(rounds):
                if trained and self._held is None:
                    self._waits[spare].add(clock.now() - began_s)
            elif clock.now() > due_s and self._can_train(trained):
                self._tell(HeldUp())
                self._held = (began_s, version, spare) if self.method.drifting(self._state) else None
                patient = True

    def _wait_on(self, enough: Callable[[], bool]) -> None:
        self.node.wait(lambda facts: self._may_go_on(facts) or enough(), self.catch_up, needs_supervisor=False)

    def _moved_on(self, rounds: int) -> bool:
        return self.method.rounds_over(self._state) != rounds

    def _can_train(self, trained: bool) -> bool:
        return trained or (self._wanted is not None and self._wanted(self.node.facts))

    def _see_drift(self) -> None:
        """A round that was held up is over. Where nobody has come or gone it was only slow: the next one may be, too."""
        if self._held is not None and not self.method.drifting(self._state):
            began_s, version, spare = self._held
            if version == self._version:
                self._waits[spare].add(self.node.clock.now() - began_s)
            self._held = None

    def _may_go_on(self, facts: RunStatus) -> bool:
        """Also a worker that is to leave, and has nothing to lose by it."""
        return self.proceed or (facts.leave is not None and self.method.dispensable(self._state))

    def _fetch(self) -> None:
        self.local.fetch()

    def _idle_turn(self) -> None:
        """A turn without data, for the others' sake."""
        self._turn(0, 0.0)

    def _breathe(self, until: Callable[[RunStatus], bool]) -> None:
        """Between two turns without data: wait for something to happen."""
        self.node.pause(self.catch_up, lambda: until(self.node.facts))

    def catch_up(self) -> None:
        """Hand over what has come, and the news of who is here."""
        roster = self.node.facts.roster
        if self._state is not None and roster is not None and roster.stamp != self._version:
            self._version = roster.stamp
            self._tell(Placed(self.node.place(self.shape, self.stage.phase)))
        while self.stage.mail and self._state is not None:  # before the start it waits
            self._deliver(self.stage.take_mail())
        if self.node.snapshot_wanted and self.stage is self.node.stage:  # not of a phase that is over
            self.node.grant(self.replica.state(), {})

    def finish(self) -> None:
        """Take turns for the others' sake until the run is over, then end together."""
        facts = self.node.facts
        self._tell(Ended())
        while not facts.over(self.stage.phase):
            if self.method.lockstep:
                self._idle_turn()
            if self.node.supervisor_lost():
                raise SupervisorLost("the supervisor fell silent before it ended the run")
            self._breathe(lambda facts: facts.over(self.stage.phase))
        self._tell(Draining())
        while not self.finished:
            if self.method.turns_until_finished and self.proceed:
                self._idle_turn()
            else:
                self.node.wait(lambda _: self.finished, self.catch_up, needs_supervisor=False)
        self.local.put_back()
        self.watch.charge("wait")

    def leave(self) -> None:
        """The others go on without this worker as soon as the supervisor tells them. What its codec keeps for later is
        handed to one of them."""
        if self._state is not None:
            if self.method.vector == "weights":  # gradients are with the others when the step is over
                self._fetch()
                self._tell(Leaving())
                self._share()
            holder = self.replica if self.method.streams else self.local.coder
            if holder is not None:
                neighbours = self.node.place(self.shape, self.stage.phase).neighbours()
                self.bequest.hand_on(holder.bequest(), neighbours, self.idle)
        self.node.pass_on(self.idle)
        self.node.pass_on(self.idle)  # what waited for an answer to the first

    def _share(self) -> None:
        """Until what this worker did is with the others, in turns without data where they wait for its turns."""

        def shared(facts: RunStatus) -> bool:
            return not self._owing() or facts.over(self.stage.phase)

        while not shared(self.node.facts):
            if self.method.lockstep:
                self._idle_turn()
            if self.node.supervisor_lost():
                raise SupervisorLost("the supervisor fell silent while this worker was leaving")
            self._breathe(shared)

    def _owing(self) -> bool:
        with self._lock:
            return self._state is not None and self.method.owing(self._state)

    def _inherit(self, part: bytes) -> None:
        holder = self.replica if self.method.streams else self.local.coder
        if holder is None:
            raise MalformedMessage("a residual, in a run whose updates are dense")
        holder.inherit(part)

    def unsent(self, gone: Collection[int]) -> list[Any]:
        with self._lock:
            known = self.method.returns == "sum" and self._state is not None
            return self.method.unsent(self._state, gone) if known else []

    def welcomed(self, unsent: Sequence[Any]) -> None:
        with self._lock:
            self._do(self.method.welcomed(self._state, unsent))

    def _deliver(self, item: Heard) -> None:
        with self._lock:
            if self._state is None:
                self._early.append(item)
                return
            try:
                if self.bequest.heard(item):
                    return
                self._tell(item)
                self.included += 1
            except MalformedMessage as error:
                self.node.refusals.add(item.sender, str(error))

    def _tell(self, event: MethodEvent) -> None:
        self.carry_out(lambda: self.method.on(self._state, event, self.node.clock.now()))

    def look(self, at: Callable[[], Seen]) -> Seen:
        """At the method's state, while nobody changes it."""
        with self._lock:
            return at()

    def carry_out(self, asked: Callable[[], list[MethodAction]]) -> None:
        """Ask the method, and do what it answers."""
        with self._lock:
            self._do(asked())

    def _do(self, actions: list[MethodAction]) -> None:
        for action in actions:
            match action:
                case Tell():
                    self.node.post(action, self.stage)
                case Proceed():
                    self.proceed = True
                case Finished():
                    self.finished = True
                case Refuse(sender, why):
                    self.node.refusals.add(sender, why)
        if self.node.assembling is not None:
            self.node.assembling.agreed = max(self.node.assembling.agreed, self.method.agreed(self._state))
