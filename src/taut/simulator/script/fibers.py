"""Virtual time: one event after the other, and workers' scripts as threads of which exactly one runs at any moment.

The world's loop takes the earliest event and carries it out. A *fiber* is a thread that the loop resumes and that parks
itself when it has to wait; while it runs, virtual time stands still. So a run is one sequence of events, and the same
every time. What scripts share by accident (the global random generators, standard output) is swapped with them.
"""

from __future__ import annotations

import contextvars
import heapq
import random
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

NS = 1_000_000_000


class Killed(BaseException):
    """Unwinds a fiber that was killed. Not an ``Exception``: no script catches it by accident."""


class World:
    """The clock and the events to come. Implements ``taut.core.clock.Clock``.

    >>> world, seen = World(), []
    >>> world.at(2 * NS, lambda: seen.append(world.now()))
    >>> world.at(NS, lambda: seen.append(world.now()))
    >>> world.run(lambda: False); seen
    [1.0, 2.0]
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self.events = 0
        self.fibers: list[Fiber] = []
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._turn = _held_lock()  # the loop's, given back by the fiber that parks
        self._dressed: Fiber | None = None  # whose random state the generators have
        self._outer: Any = None  # theirs outside of all fibers

    def now(self) -> float:
        return self.now_ns / NS

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        """At that time (or now, if it is past) do this. Of one moment's events the first that was planned is first."""
        self._count += 1
        heapq.heappush(self._heap, (max(time_ns, self.now_ns), self._count, action))

    def run(self, over: Callable[[], bool]) -> None:
        """Until ``over``, or until nothing more can happen."""
        try:
            while self._heap and not over():
                self.now_ns, _, action = heapq.heappop(self._heap)
                self.events += 1
                action()
        finally:
            self.dress(None)

    def close(self) -> None:
        """Unwind every fiber that is left."""
        for fiber in self.fibers:
            fiber.kill()
        self.dress(None)

    def dress(self, fiber: Fiber | None) -> None:
        """Give the generators that scripts share the state that this fiber left them in; None: the one from outside. Only
        where another fiber comes to run: events in between draw nothing."""
        if fiber is self._dressed:
            return
        now = _randomness()
        if self._dressed is None:
            self._outer = now
        else:
            self._dressed.randomness = now
        self._dressed = fiber
        _set_randomness(self._outer if fiber is None or fiber.randomness is None else fiber.randomness)


class Fiber:
    """``target`` in a thread of its own, when resumed. ``failure``: what it raised."""

    def __init__(self, world: World, target: Callable[[], None], name: str, output: TextIO) -> None:
        self.world, self.name, self.output = world, name, output
        self.done = self.killed = False
        self.failure: BaseException | None = None
        self._target = target
        self._turn = _held_lock()
        self._began = False
        self._asleep = False
        self._stolen_ns = self._frozen_until_ns = 0
        self._wake = 0  # numbers the waits, so that an alarm of one that is over does not end the next
        self.resting = False  # what runs next draws nothing; whoever sets it dresses the fiber before anything else does
        self.randomness: Any = None  # of the generators that scripts share, as it left them
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True)
        world.fibers.append(self)

    def resume(self) -> None:
        """Let it run until it parks or ends. Called by the loop."""
        if self.done:
            return
        outer, sys.stdout = sys.stdout, self.output
        if not self.resting:
            self.world.dress(self)
        if self._began:
            self._turn.release()
        else:
            self._began = True
            self._thread.start()
        interrupted = self._until_parked()
        sys.stdout = outer
        if self.done:
            self._thread.join()
        if interrupted is not None:
            raise interrupted

    def _until_parked(self) -> BaseException | None:
        """Wait for the fiber. Ctrl-C comes to this thread: it is kept until the fiber has parked, since two at once
        would be the end of all order."""
        interrupted: BaseException | None = None
        while True:
            try:
                self.world._turn.acquire()
                return interrupted
            except BaseException as error:
                if interrupted is not None:
                    raise  # asked twice: the fiber does not come to an end
                interrupted = error

    def kill(self) -> None:
        """End it where it stands."""
        self.killed = True
        if self._began:
            self.resume()
        self.done = True

    def sleep(self, duration_ns: int) -> None:
        """Park for so long, and longer where it was frozen meanwhile. Called by the fiber itself."""
        self._asleep = True
        while duration_ns > 0:
            self.wait(self.world.now_ns + duration_ns)
            duration_ns, self._stolen_ns = self._stolen_ns, 0
        self._asleep = False

    def freeze(self, duration_ns: int) -> None:
        """It stands still for so long, like a process that is stopped."""
        self._frozen_until_ns = self.world.now_ns + duration_ns
        if self._asleep:
            self._stolen_ns += duration_ns

    def wait(self, until_ns: int) -> None:
        """Park until then, or until ``rouse``."""
        self._wake += 1
        number = self._wake
        self.world.at(until_ns, lambda: self._alarm(number))
        self._park()

    def rouse(self) -> None:
        """End its wait now. Called from events."""
        number = self._wake
        self.world.at(self.world.now_ns, lambda: self._alarm(number))

    def _alarm(self, number: int) -> None:
        if number != self._wake:
            return
        if self.world.now_ns < self._frozen_until_ns and not self._asleep:
            self.world.at(self._frozen_until_ns, lambda: self._alarm(number))
            return
        self.resume()

    def _park(self) -> None:
        if self.killed:
            raise Killed
        self.world._turn.release()
        self._turn.acquire()
        self._wake += 1
        if self.killed:
            raise Killed

    def _run(self) -> None:
        try:
            self._target()
        except Killed:
            pass
        except BaseException as error:
            self.failure = error
        finally:
            self.done = True
            self.world._turn.release()


def _held_lock() -> threading.Lock:
    """To hand a turn on with: who acquires it waits until the other side releases it. Cheaper than a semaphore."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def _randomness() -> tuple[Any, ...]:
    """The state of the generators that scripts share: Python's, NumPy's and torch's, where they are loaded."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return (
        random.getstate(),
        None if numpy is None else numpy.random.get_state(),
        None if torch is None else torch.get_rng_state(),
    )


def _set_randomness(state: tuple[Any, ...]) -> None:
    random.setstate(state[0])
    if state[1] is not None:
        sys.modules["numpy"].random.set_state(state[1])
    if state[2] is not None:
        sys.modules["torch"].set_rng_state(state[2])
