"""A worker's end of the cluster: the dispatcher's work, shared by two threads, one at a time.

The training thread hands updates over (``publish``), takes what arrived (``take``) and waits for facts (``wait``). While
it streams it does the dispatcher's work itself (``pump``); the communication thread does it whenever the training thread
does not come by. The communication thread never touches the model.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from taut.core import events as ev
from taut.core.callbacks import do_nothing
from taut.core.messages import Member, Message, Welcome
from taut.errors import SupervisorLost
from taut.strategies.delivery.channels import ChannelsState
from taut.transport.transport import Transport
from taut.worker.comm.dispatcher import TICK_S, Dispatcher
from taut.worker.comm.phase_protocols import PhaseProtocol, Protocol
from taut.worker.comm.run_status import RunStatus
from taut.worker.model.snapshot import Snapshot

if TYPE_CHECKING:
    from taut.worker.exchange.turns import Wait
    from taut.worker.time_split import Stopwatch

AGAIN_S = 5.0  # far beyond any round trip to a supervisor whose pulse is still felt
LONGER = 4.0  # times the longest wait for others so far: something must have happened to them


class CommThread:
    """The thread that works for ``dispatcher``, and what the training thread asks of it."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher, self._commands = dispatcher, dispatcher.commands
        self.clock, self.status = dispatcher.clock, dispatcher.status
        self.supervisor, self.transfer = dispatcher.supervisor, dispatcher.transfer
        self.protocols, self.rejections = dispatcher.protocols, dispatcher.rejections
        self._closing: float | None = None  # asked to end, after so many seconds at most
        self._closing_s: float | None = None
        # The transport is used by one thread at a time. In training, that may be the training thread itself: waking
        # another one, and sharing the interpreter with it, costs a short step more than the work it would do.
        self._transport_lock = threading.Lock()
        self._pumped_s = float("-inf")  # when the training thread last did the work
        self._pump_wanted = threading.Event()
        self._rested = threading.Event()
        self._longest_s = 0.0  # wait for the others that came to its end
        self.aside: Callable[[], None] = do_nothing  # done in every wait: somebody may be in the phase before still
        self.complement: Callable[[Snapshot], Snapshot] = _as_it_is  # what goes with the weights to a newcomer
        self._thread = threading.Thread(target=self._run, name="taut-communication", daemon=True)

    @property
    def transport(self) -> Transport:
        return self.dispatcher.transport

    @property
    def rank(self) -> int:
        return self.dispatcher.rank

    @property
    def workers(self) -> int:
        """Return how many workers are in the run, this one included."""
        return self.dispatcher.workers

    @property
    def phase_protocol(self) -> PhaseProtocol:
        """Return the present phase's protocol; there is one from the welcome on."""
        return self.protocols.phase_protocol

    # ------------------------------------------------------------------------------------- the training thread

    def start(self) -> None:
        self._thread.start()

    def close(self, linger_s: float = 0.0) -> None:
        """Stop the communication thread, after ``linger_s`` at most for what is still queued."""
        self._closing = linger_s
        self._rested.set()
        self.transport.wake()
        if self._thread.is_alive():
            self._thread.join()
        else:
            self.transport.close()

    def retire(self) -> PhaseProtocol:
        """Carry out what was asked for (what was published is in the log then), close, and return the present phase's
        protocol as it is left: this worker was evicted."""
        with self._transport_lock:
            self.dispatcher.work(None)
        self.close()
        return self.phase_protocol

    def say(self, message: Message, payloads: Sequence[bytes] = ()) -> None:
        """Send a message to the supervisor."""
        self._command(partial(self.supervisor.say, message, payloads))

    def publish(self, payload: bytes | None, positions: dict[int, int]) -> None:
        """Hand over the update of an iteration (None: it had nothing to say), and tell that everything up to
        ``positions`` has been included."""
        if positions:
            self._commands.append(partial(self.protocols.tell, ev.Taken(positions)))
        self._commands.append(partial(self.protocols.tell, ev.Published(payload)))

    def pump(self, receive: bool) -> None:
        """Do the communication thread's work in this one, now: send what was published, and take in what came if asked
        to. If the other thread is at it, it is told that there is something to do, and that we would rather do it."""
        if not self._transport_lock.acquire(blocking=False):
            self._pump_wanted.set()
            self.transport.wake()
            return
        try:
            self._pumped_s = self.clock.now()
            self.dispatcher.work(0.0 if receive else None)
        except Exception as error:  # not Ctrl-C, which may come at any moment: the worker leaves in order then
            self.status.fail(error)
            raise
        finally:
            self._transport_lock.release()

    def tell(self, event: ev.Event) -> None:
        """Tell the strategy that ``event`` happened: this worker's clock, what was included, or that no more follows."""
        self._command(partial(self.protocols.tell, event))

    def advance(self, protocol: Protocol) -> None:
        """Go to the next phase, which runs ``protocol``; return when the communication thread is there."""
        phase = self.phase_protocol.phase
        self._command(partial(self._advance, protocol))
        self.wait(lambda _: self.phase_protocol.phase > phase, do_nothing, needs_supervisor=False)

    def _advance(self, protocol: Protocol) -> None:
        self.protocols.advance(protocol)
        self.transfer.enter(self.phase_protocol.phase)

    def synced(self, phase_protocol: PhaseProtocol, have: dict[int, int], tail: Sequence[ev.Include]) -> None:
        """Tell a phase that its state is here. The run may have gone on to another phase meanwhile."""
        self._command(partial(self.protocols.tell, ev.Synced(have, list(tail)), phase_protocol))

    def grant(self, state: Snapshot, have: dict[int, int]) -> None:
        """Give the snapshot that ``transfer.wanted`` asked for. It holds everything that ``take`` has returned."""
        self.transfer.wanted = False
        self._command(partial(self._grant, self.complement(state), have))

    def _grant(self, state: Snapshot, have: dict[int, int]) -> None:
        self.transfer.grant(replace(state, tail=tuple(self.phase_protocol.state.tail(have))), have)

    def take(self) -> list[ev.Include]:
        """Return the updates that have arrived, in the order to include them."""
        return self.protocols.take()

    def post(self, tell: ev.Tell, phase_protocol: PhaseProtocol | None = None) -> None:
        """Send a method's message to another worker, reliably and in order. From any thread."""
        self._commands.append(partial(self.protocols.tell, tell, phase_protocol or self.phase_protocol, True))
        if threading.current_thread() is not self._thread:
            self.transport.wake()

    def join_alone(self, rank: int, neighbours: Sequence[Member]) -> None:
        """Begin as worker ``rank`` without a supervisor (before ``start``): these are the neighbours, and all begin
        alike."""
        self.dispatcher.rank, self.dispatcher.workers = rank, len(neighbours) + 1
        welcome = Welcome(rank, "", 0, self.workers, "{}")
        self.protocols.begin(self.dispatcher.make_strategy(welcome), rank, synced=True)
        for member in neighbours:
            self.transport.admit(member)
            self.protocols.met(member.rank, 0)  # before anything can come: what comes of a stranger is dropped

    def delivered(self) -> bool:
        """Return whether all workers that are left have received everything that was published."""
        phase_protocol = self.protocols.present
        return phase_protocol is not None and not self._commands and phase_protocol.delivered()

    def pass_on(self, idle: Callable[[], None]) -> None:
        """Wait until all workers that are left have received everything that was posted so far. A server and a relay are
        never through: others ask and send until they are told that this worker is gone."""
        self.wait(lambda _: not self._commands, idle)
        state = self.phase_protocol.state
        assert isinstance(state, ChannelsState), "streams are delivered"
        marks = state.posted()
        self.wait(lambda _: state.received(marks), idle)

    def run_turn(
        self, turn: Iterable[Wait | None], watch: Stopwatch | None, again: Callable[[], None] | None = None
    ) -> None:
        """Carry out ``turn`` in this thread, blocking where it waits. ``watch``: to charge the waits to. ``again`` is
        called now and then in a wait for the supervisor."""
        asked_s = self.clock.now() if again is not None else 0.0
        for wait in turn:
            if wait is None:
                continue
            if wait.pauses:
                if self.supervisor.lost():
                    raise SupervisorLost("the supervisor fell silent while this worker needed an answer of it")
                self.pause(wait.idle, wait.until)
                if again is not None and self.clock.now() - asked_s > AGAIN_S:
                    again()
                    asked_s = self.clock.now()
            else:
                self.wait(lambda _: wait.until(), wait.idle, again, wait.on_supervisor)  # noqa: B023
            if watch is not None:
                watch.charge("wait")

    def pause(self, idle: Callable[[], None], over: Callable[[], bool]) -> None:
        """Wait until something happens, or for a moment."""
        self._take_over()
        self.aside()
        idle()
        left = self._mail()
        with self.status.changed:
            if self.status.failure is not None:
                raise self.status.failure
            if not over() and self._mail() == left:
                self.status.changed.wait(TICK_S)
        idle()

    def wait(
        self,
        until: Callable[[RunStatus], bool],
        idle: Callable[[], None],
        again: Callable[[], None] | None = None,
        needs_supervisor: bool = True,
    ) -> None:
        """Wait for a fact, calling ``idle`` (which includes what arrives, and serves snapshots) meanwhile, and ``again``
        now and then: what was asked for may have been lost. Raise what went wrong if the fact can no longer come.
        ``needs_supervisor``: the fact is to come from the supervisor; else from the other workers."""
        status = self.status
        began_s = asked_s = self.clock.now()
        self._take_over()
        while True:
            self.aside()
            idle()
            left = self._mail()
            if again is not None and self.clock.now() - asked_s > AGAIN_S:
                again()
                asked_s = self.clock.now()
            with status.changed:
                if until(status):
                    break
                if status.failure is not None:
                    raise status.failure
                if self.supervisor.lost():
                    self._despair(began_s, needs_supervisor)
                if self._mail() == left:
                    status.changed.wait(TICK_S)
        if not needs_supervisor:
            self._longest_s = max(self._longest_s, self.clock.now() - began_s)

    def _despair(self, began_s: float, needs_supervisor: bool) -> None:
        """Raise ``SupervisorLost`` if there is no supervisor any more and the wait is for the supervisor, or has lasted
        too long: nothing tells which of the others died."""
        waited_s = self.clock.now() - began_s
        if needs_supervisor:
            raise SupervisorLost("the supervisor fell silent while this worker needed an answer of it")
        if waited_s > max(self.supervisor.patience_s, LONGER * self._longest_s):
            raise SupervisorLost(f"nothing came from the others for {waited_s:.0f} s, and no supervisor says who lives")

    def _mail(self) -> int:
        """Return how many messages wait for the method. Those that ``idle`` leaves (all, before the start) are not waited
        for again."""
        phase_protocol = self.protocols.present
        return len(phase_protocol.mail) if phase_protocol is not None else 0

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        if self.clock.now() - self._pumped_s >= TICK_S:  # else it goes with the next pump, very soon
            self.transport.wake()

    def _take_over(self) -> None:
        """Let the communication thread do the work: the training thread is going to wait."""
        if self._pumped_s > float("-inf"):
            self._pumped_s = float("-inf")
            self._pump_wanted.clear()
            self._rested.set()
            self.transport.wake()

    # -------------------------------------------------------------------------------- the communication thread

    def _run(self) -> None:
        if sys.platform == "linux":  # as the transport's own thread: see there
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        try:
            while not self._may_end():
                if self._pump_wanted.is_set() or self.clock.now() - self._pumped_s < TICK_S:
                    self._pump_wanted.clear()
                    self._rested.wait(TICK_S)  # the training thread does the work while it comes by often
                    self._rested.clear()
                    continue
                with self._transport_lock:
                    self.dispatcher.work(self._idle_s())
        except BaseException as error:
            self.status.fail(error)
        finally:
            self.transport.close(self._closing or 0.0)

    def _idle_s(self) -> float:
        """Return for how long to wait for a message. Where this worker is alone, nothing is due before a heartbeat, and
        what is asked for wakes the transport."""
        if self.workers > 1 or self.protocols.present is None:
            return TICK_S
        return max(TICK_S, self.supervisor.due_in_s(self.clock.now()))

    def _may_end(self) -> bool:
        """Return whether the thread was asked to close and has said everything, or had time enough to say it."""
        if self._closing is None:
            return False
        if self._closing_s is None:
            self._closing_s = self.clock.now()
        all_said = not self._commands and self.supervisor.all_said
        return all_said or self.clock.now() - self._closing_s > self._closing


def _as_it_is(state: Snapshot) -> Snapshot:
    return state
