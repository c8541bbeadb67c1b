"""A place in a run: admission, the state, leases, exchange, and the orderly end. All of it in the training thread."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from taut.core.messages import (
    PROTOCOL_VERSION,
    Done,
    Hello,
    Ready,
    Returned,
    Statistics,
    Welcome,
)
from taut.errors import Expelled, GivenUp, Misuse, PeerLost, Refused, SupervisorLost
from taut.strategies.combination import default_finish
from taut.worker.arena import Arena
from taut.worker.entrance import Entrance
from taut.worker.finishing import Finishing
from taut.worker.phases import Phases
from taut.worker.replica import Replica
from taut.worker.resumption import Resumption
from taut.worker.returning import Carried, carried, less, together
from taut.worker.stage import Protocol
from taut.worker.state import unpack
from taut.worker.supervisor_leases import SupervisorLeases
from taut.worker.talk import Talk
from taut.worker.validation import Validation

if TYPE_CHECKING:
    import torch

    from taut.worker.checkpoint import Keeper


log = logging.getLogger("taut")


class Seat:
    """Takes a place in the run that ``entrance`` leads to, for the model in ``arena``. When the constructor returns, the
    worker is admitted and has the run's state; ``train`` waits for the start."""

    def __init__(
        self,
        entrance: Entrance,
        arena: Arena,
        codec: str | None = None,
        validation: Validation | None = None,
    ) -> None:
        self.arena, self._codec_of_script = arena, codec
        self.validation = validation or Validation()
        self.score: float | None = None  # of this worker's replica, at the end
        self.statistics: Callable[[], Statistics] = Statistics
        self.bytes_dense = 0
        self._state = "joining"  # as the supervisor knows it
        self._settings: dict[str, Any] = {}
        self.keeper: Keeper | None = None  # of this worker's part of the checkpoints
        self.resumption: Resumption | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self.watch = entrance.watch
        self._entrance = entrance
        self._before = Statistics()  # what was counted at former places
        self._merged = False  # the run's state is in the model
        self.returned: Callable[[], None] = _nothing  # called when this worker has come back
        was = -1
        while True:
            try:
                self._sit(None, was)
                break
            except GivenUp:  # it stood still while it joined: it begins anew
                was = self.node.rank
                entrance.renew()

    def _sit(self, carried: Carried | None, was: int) -> None:
        """Take a place; another one, with what it ``carried`` from there, if it ``was`` in the run before."""
        entrance, arena = self._entrance, self.arena
        state_nbytes = 4 * arena.size + len(arena.still_bytes())
        self._state, self._merged = "joining", False
        self.node = entrance.node(
            self._strategy,
            statistics=self._count,
            sketch=self._take_sketch,
            state_limit_nbytes=8 * state_nbytes + (256 << 20),
        )
        if carried is not None:  # it knows the supervisor, which may be coming back itself
            self.node.supervisor.admission_s = float(self._settings.get("patience_s", self.node.supervisor.patience_s))
        self.node.start()
        try:
            self._admit(entrance, carried, was)
            entrance.seated(self)
        except BaseException:
            self.node.close()
            raise

    def _strategy(self, welcome: Welcome) -> Protocol:
        """What the communication thread runs from the welcome on."""
        self.phases = Phases(json.loads(welcome.settings), self.arena, self._codec_of_script)
        return self.phases.protocol()

    @property
    def talk(self) -> Talk:
        return self.phases.talk

    @property
    def replica(self) -> Replica:
        return self.phases.replica

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self.talk.attach(optimizer)

    def _finish(self) -> str:
        """How the model is chosen at the end."""
        finish: str = self._settings.get("finish") or default_finish(self.phases.last)
        if finish == "best" and self.validation.validate is None and "finish" in self._settings.get("explicit", ()):
            raise Misuse(
                "finish=best in a script without a validation function",
                "taut.join(model, optimizer, validate=...), a function that takes the model and gives a number",
                "or --finish average",
            )
        return finish

    def _admit(self, entrance: Entrance, carried: Carried | None, was: int) -> None:
        node, who = self.node, (entrance.host, entrance.pid)
        hello = Hello(PROTOCOL_VERSION, self.arena.specs(), entrance.address, entrance.public_key, *who, was)
        node.say(hello)
        node.wait(lambda facts: facts.welcome is not None, _nothing, again=lambda: node.say(hello))
        welcome = node.facts.welcome
        assert welcome is not None
        self.seed, self.run = welcome.seed, welcome.run
        self.settings = self._settings = json.loads(welcome.settings)
        node.supervisor.patience_s = float(self._settings.get("patience_s", node.supervisor.patience_s))
        self.resumption = self._resumption(welcome)
        self.finish_policy = self._finish()
        self.phases.begin(node, self.watch)
        self.leases = SupervisorLeases(self)
        node.supervisor.standing = self._standing
        node.wait(lambda facts: facts.donor == -1 or facts.state is not None, _nothing)
        workers = max(1, welcome.workers)
        if node.facts.state is None:
            if self.resumption is not None:
                self.resumption.founded(self.replica, workers)
            else:
                self.replica.found(workers)
            node.synced({}, ())
        else:
            data, have = node.facts.state
            state = unpack(data)
            node.facts.state = None  # its bytes are in the model now
            tail = list(state.tail)
            if carried is not None:
                tail += carried.merge(self.replica, state, have, self._gone())
                have = {**have, **{item.origin: item.hi for item in tail}}
            else:
                self.replica.join(state, workers)
            if self.resumption is not None:
                self.resumption.joined(self.replica, workers)
            self.talk.joined(have)
            node.synced(have, tail)
        self._state, self._merged = "ready", True
        node.say(Ready())

    def _resumption(self, welcome: Welcome) -> Resumption | None:
        """The checkpoint that this run continues, if it does."""
        resumed = self._settings.get("resume")
        if resumed is None or self.node.rank >= welcome.workers:
            return None  # who joins in mid-run takes what any joiner does
        return Resumption(Path(resumed["folder"]), self.node.rank, max(1, welcome.workers), self.phases.choice)

    def _standing(self) -> Returned:
        """Where this worker stands, for a supervisor that came back. Asked by the communication thread."""
        holds, done = self.leases.standing()
        return Returned(self.node.rank, self._state, self.phases.number, holds, done, self.leases.length)

    def train(self) -> None:
        """Wait for the start."""
        try:
            self._start()
        except GivenUp as error:
            self.come_back(error)
        self.watch.restart()
        if self.resumption is not None:
            self.resumption.restore_phase(self.phases)
            self.resumption.restore_talk(self.talk)

    def _start(self) -> None:
        self.node.wait(lambda facts: facts.started or facts.stopping, self.talk.idle)
        self.talk.start()

    @property
    def stopping(self) -> bool:
        return self.node.facts.stopping

    @property
    def leaving(self) -> bool:
        """This worker alone is to go, and the run goes on."""
        facts = self.node.facts
        return facts.leave is not None and facts.drain is None

    def before_step(self, samples: int, rate: float) -> None:
        """The gradients are there, the optimizer has not moved yet."""
        if not isinstance(self.node.facts.failure, GivenUp):  # then ``exchange`` sees to it, when the step is over
            self._check()
        self.talk.before_step(samples, rate)

    def exchange(self, samples: int, rate: float) -> None:
        """After a local step: include what arrived, send what changed."""
        self.watch.reached(1.0)
        self.watch.charge("compute")
        self.bytes_dense += 4 * self.arena.size * (self.node.workers - 1)
        try:
            self._check()
            self.talk.exchange(samples, rate)
            self.phases.stepped(self._optimizer)
        except GivenUp as error:  # what the step changed is brought along
            self.come_back(error)
        self.watch.begin_step()

    def come_back(self, error: GivenUp) -> None:
        """This worker was silent for so long that the others went on without it, and would take it back: take another
        place, with the same model and optimizer. ``Expelled`` where that cannot be any more."""
        first = was = self.node.rank
        brought = carried(self)
        talks = [brought.talk]
        while True:
            self._before = together(self._before, self.node.supervisor.acknowledged)
            self._entrance.renew()
            try:
                self._sit(brought, was)
                if self._optimizer is not None:
                    self.talk.attach(self._optimizer)
                self._start()
                break
            except GivenUp as again:
                if self._merged:
                    brought = carried(self)
                    talks.append(brought.talk)
                was, error = max(was, self.node.rank), again
            except Refused as refusal:
                raise Expelled(f"{error}; and it could not come back: {refusal}") from None
        self.talk.welcomed([payload for talk in talks for payload in talk.unsent(self._gone())])
        self.bytes_dense = 0
        self.returned()
        self.watch.charge("wait")
        log.warning("worker %d was given up, and is back as worker %d (%s)", first, self.node.rank, error)

    def _gone(self) -> list[int]:
        roster = self.node.facts.roster
        return [] if roster is None else [each.rank for each in roster.gone]

    @property
    def announced(self) -> bool:
        """The next phase was, and this worker is not in it yet."""
        return self.node.facts.phase > self.phases.number

    def follow(self) -> None:
        """Go to the phase that was announced, if one was."""
        self.phases.follow(self._optimizer)

    def _check(self) -> None:
        if self.node.facts.failure is not None:
            raise self.node.facts.failure

    def add_statistics(self, mine: Statistics) -> Statistics:
        """``mine`` with what the seat knows: traffic and codec. Of this place in the run alone."""
        codec_state = self.replica.codec_state
        return msgspec.structs.replace(
            less(mine, self._before),
            bytes_sent=self.node.bytes_sent,
            bytes_dense=self.bytes_dense,
            updates_sent=self.talk.sent,
            updates_included=self.talk.included,
            staleness=self.talk.staleness,
            counted=" ".join(f"{name}={value:g}" for name, value in self.talk.figures().items())[:1024],
            density=float(codec_state.density) if codec_state is not None else 0.0,
            tau=float(codec_state.tau) if codec_state is not None else 0.0,
        )

    def _count(self) -> Statistics:
        return self.statistics() if self._merged else Statistics()

    def _take_sketch(self) -> list[float]:
        replica = getattr(self.phases, "replica", None) if hasattr(self, "phases") else None
        return replica.sketch if replica is not None else []

    # --------------------------------------------------------------------------------------------- the end

    def finish(self) -> None:
        """Drain, agree on the model, hand it in if asked to, and go."""
        try:
            self._say_done()
            self._end()
            self._agree()
        except (SupervisorLost, PeerLost) as error:
            raise type(error)(f"{error}; the model as this worker has it is in {self.save_here()}") from None
        finally:
            self.node.close(linger_s=1.0)

    def _say_done(self) -> None:
        self._state = "done"
        self.node.say(Done())

    def _end(self) -> None:
        """Finish the talk; as long as that ends a phase and not the run, go to the next one, whoever has the data."""
        while True:
            try:
                self.talk.finish()
            except GivenUp as error:
                self.come_back(error)
                self._say_done()
                continue
            if self.node.facts.phase <= self.phases.number:
                return
            self.phases.change(self._optimizer)

    def save_here(self) -> Path:
        """Nobody takes the model: it must not be lost."""
        from safetensors.torch import save_file

        assert self.node.facts.welcome is not None
        self.replica.settle()
        path = Path(f"{self.node.facts.welcome.run}-worker-{self.node.rank}.safetensors").absolute()
        temporary = path.with_suffix(".part")
        save_file(self.arena.state_dict(), temporary)
        temporary.replace(path)
        return path

    def leave(self) -> None:
        """Go before the end: wait until all others have everything of ours, say good-bye."""
        try:
            self.talk.leave()
            self.node.say(Done(leaving=True))
        finally:
            self.node.close(linger_s=1.0)

    def _agree(self) -> None:
        choice = self.phases.choice
        consensus = choice.is_method and choice.kind.consensus  # then there is nothing left to average
        finishing = Finishing(
            self.node,
            self.replica,
            self.talk,
            self.validation,
            self.statistics,
            averages=self.finish_policy == "average" and not consensus,
        )
        try:
            finishing.run()
        finally:
            self.score = finishing.score


def _nothing() -> None:
    pass
