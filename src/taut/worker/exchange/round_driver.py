"""The order of a method's turns: after a step tell the method, wait until it lets the worker go on; the same without data
while others may wait for this worker's turn, at the end of the run, and before this worker leaves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from taut.core.events import Ended
from taut.strategies.allreduce.sync import Sync
from taut.strategies.api import Draining, HeldUp, Leaving, Method, MethodAction, MethodEvent, Stepped
from taut.worker.exchange.adaptive_timeout import HELD_UP_S, AdaptiveTimeout
from taut.worker.exchange.turns import Turn, Wait

FORWARD_SHARE = 1 / 3  # of a step's computing: backward takes about twice as long, and gradients appear in it


class RoundIO(Protocol):
    """What a method's turns need of the world. ``version``: of the membership that the method was told last; ``over``:
    training is, for all; ``leaving``: this worker is to go."""

    @property
    def method_state(self) -> Any: ...
    @property
    def version(self) -> int: ...
    @property
    def over(self) -> bool: ...
    @property
    def leaving(self) -> bool: ...

    def now(self) -> float:
        """Return the time in seconds."""

    def fetch(self, samples: int) -> None:
        """Get the vector ready that the method is to see."""

    def put_back(self) -> None:
        """Give the worker the vector that the method has made."""

    def catch_up(self) -> None:
        """Tell the method what has come, and who is here."""

    def ask(self, what: Callable[..., list[MethodAction]], *given: Any) -> None:
        """Ask the method (``what(method_state, *given)``), and carry out its answers."""

    def charge(self, kind: str) -> object:
        """Charge the time since the last charge to this kind of work."""

    def idle(self) -> None:
        """Catch up outside of a turn."""

    def own_turn(self, samples: int) -> Turn:
        """Take a turn that no step of the script's asks for; without samples it is for the others' sake."""

    def owing(self) -> bool:
        """Return whether the others still need something of this worker, which leaves."""

    def hand_off(self) -> Turn:
        """Give what the codec keeps to another worker."""

    def pass_on(self) -> Turn:
        """Wait until the others have received all that was sent."""


class RoundDriver:
    """One worker's turns around ``method``. ``proceed`` and ``finished`` are set by the I/O when the method says so.
    ``gathered``: the samples of the micro-batches whose gradients add up so far."""

    gathered = micro_batches = 0

    def __init__(self, method: Method, io: RoundIO) -> None:
        self.method, self.io = method, io
        self.proceed, self.finished = True, False
        self.turns = 0
        self._waits = {spare: AdaptiveTimeout(steady=spare) for spare in (False, True)} if method.drifts else {}
        self._wait: Wait  # the present one, and what is asked in it
        self.rounds = 0  # that were over when it began
        self._trained = False
        self._usual: AdaptiveTimeout | None = None
        self._wanted: Callable[[], bool] | None = None  # what a worker without data waits for, in idle turns
        self._held: tuple[float, int, bool] | None = None  # since when, among which members, and whether it was spare

    # ------------------------------------------------------------------------------------------------- one turn

    def turn(self, samples: int, rate: float) -> Turn:
        """Tell the method that a local step is over, and wait until it lets the worker go on."""
        if self.finished:
            return
        io = self.io
        self.turns += 1
        io.fetch(samples)
        io.catch_up()
        io.charge("merge")
        yield None
        self.proceed = False
        io.ask(self.method.on, Stepped(samples, rate), io.now())
        io.charge("send")
        if not self.proceed:
            yield from self._await(samples > 0)
        if self._held is not None:
            self._see_drift()
        io.put_back()
        io.charge("merge")
        self.gathered = self.micro_batches = 0

    def _tell(self, event: MethodEvent) -> None:
        self.io.ask(self.method.on, event, self.io.now())

    def idle(self) -> None:
        """Serve the others outside of a turn."""
        self.io.idle()

    def make_up(self) -> Turn:
        """Take the turns that this worker has missed."""
        while self.method.owed(self.io.method_state):
            yield from self.io.own_turn(0)

    def _await(self, trained: bool) -> Turn:
        """Wait for the method. A worker that can train on instead, for it has data or has got some, tells the method when
        that takes too long: several times what most of the last waits took."""
        method, io = self.method, self.io
        if not method.drifts:
            yield Wait(self._may_go_on, io.catch_up)
            return
        state, due = io.method_state, HELD_UP_S
        while not self._may_go_on():
            began_s, version, self.rounds = io.now(), io.version, method.rounds_over(state)
            spare = method.spare(state)
            self._trained, self._usual = trained, self._waits[spare]
            self._wait = Wait(self._enough, io.catch_up, began_s + due)
            yield self._wait
            if self.proceed or method.rounds_over(state) != self.rounds:
                if trained and self._held is None:
                    self._waits[spare].add(io.now() - began_s)
            elif self._late(io.now()):
                self._tell(HeldUp())
                self._held = (began_s, version, spare) if method.drifting(state) else None
                due = math.inf

    def _enough(self) -> bool:  # asked after every message
        io = self.io
        if self.proceed or self.method.rounds_over(io.method_state) != self.rounds:
            return True
        now_s = io.now()
        return (now_s > self._wait.due_s and self._late(now_s)) or (io.leaving and self._may_go_on())

    def _late(self, now_s: float) -> bool:
        """Return whether the present wait takes too long, and this worker can train. No wait does in ``HELD_UP_S``: only
        after that it is looked how long the waits are."""
        wait, usual = self._wait, self._usual
        if usual is not None:
            self._usual = None
            wait.due_s += usual.too_long_s(self.rounds) - HELD_UP_S
        return now_s > wait.due_s and (self._trained or (self._wanted is not None and self._wanted()))

    def _may_go_on(self) -> bool:
        """Return whether the worker may go on: also where it is to leave, and has nothing to lose by it."""
        return self.proceed or (self.io.leaving and self.method.dispensable(self.io.method_state))

    def _see_drift(self) -> None:
        """Note that a round that was held up is over. Where no member has come or gone it was only slow: the next one may
        be, too."""
        assert self._held is not None
        if not self.method.drifting(self.io.method_state):
            began_s, version, spare = self._held
            if version == self.io.version:
                self._waits[spare].add(self.io.now() - began_s)
            self._held = None

    # ------------------------------------------------------------------------------------------- without data

    def wait(self, until: Callable[[], bool]) -> Turn:
        """Wait for an answer of the supervisor, in turns without data where others may wait for this worker's turn."""
        if not self.method.lockstep:
            yield Wait(until, self.io.idle, on_supervisor=True)
            return
        self._wanted = until
        while not until():
            if not self.method.drifting(self.io.method_state):  # else no worker waits for more of us than we gave
                yield from self.io.own_turn(0)
            yield self._pause(until)
        self._wanted = None

    def finish(self) -> Turn:
        """Take turns for the others' sake until training is over for all, then end together."""
        self._tell(Ended())
        yield from self._idle_until(lambda: self.io.over)
        self._tell(Draining())
        while not self.finished:
            if self.method.turns_until_finished and self.proceed:
                yield from self.io.own_turn(0)
            else:
                yield Wait(lambda: self.finished, self.io.catch_up)
        self.io.put_back()

    def leave(self) -> Turn:
        """Share what this worker did, in turns without data where the others wait for its turns, and hand on what its
        codec keeps. The others go on without it when the supervisor tells them."""
        io = self.io
        if self.method.vector == "weights":  # gradients are with the others when the step is over
            io.fetch(0)
            self._tell(Leaving())
            yield from self._idle_until(lambda: io.over or not io.owing())
        yield from io.hand_off()
        yield from io.pass_on()
        yield from io.pass_on()  # what waited for an answer to the first

    def _idle_until(self, until: Callable[[], bool]) -> Turn:
        while not until():
            if self.method.lockstep:
                yield from self.io.own_turn(0)
            yield self._pause(until)

    def _pause(self, until: Callable[[], bool]) -> Wait:
        """Wait for something to happen between two turns without data; not while others have data."""
        training = self.method.agreed_rate(self.io.method_state) is not None
        pauses = self.method.lockstep
        return Wait((lambda: True) if training else until, self.io.catch_up, pauses=pauses, on_supervisor=True)


class GradientDriver(RoundDriver):
    """The turns of ``Sync``, whose gradients may add up over several micro-batches."""

    method: Sync

    @property
    def completes(self) -> bool:
        """Return whether the optimizer's step follows the next micro-batch."""
        return self.micro_batches + 1 == self.method.every

    def gather(self, samples: int) -> bool:
        """Count a micro-batch; return whether the optimizer's step is due."""
        due = self.completes
        self.gathered += samples
        self.micro_batches += 1
        return due

    def finish(self) -> Turn:
        if self.gathered:  # fewer micro-batches than a step asks for
            yield from self.io.own_turn(self.gathered)
        yield from super().finish()

    def await_state(self) -> Turn:
        """Wait until another worker has given this one the run's state."""
        yield Wait(lambda: not self.method.bare(self.io.method_state), self.io.catch_up)
