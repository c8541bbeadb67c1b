"""Virtual time: one event after the other, and workers' scripts as threads of which exactly one runs at any moment.

The event loop takes the earliest event and carries it out. A *fiber* is a thread that the loop resumes and that parks
itself when it has to wait; while it runs, virtual time stands still. So a run is one sequence of events, and the same
every time. State that scripts share by accident (the global random generators, standard output) is swapped with them.
"""

from __future__ import annotations

import contextvars
import ctypes
import heapq
import random
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

NS = 1_000_000_000


class Killed(BaseException):
    """Unwinds a fiber that was killed. Not an ``Exception``: no script catches it by accident."""


class EventLoop:
    """The clock and the events to come. Implements ``taut.core.clock.Clock``.

    >>> loop, seen = EventLoop(), []
    >>> loop.at(2 * NS, lambda: seen.append(loop.now()))
    >>> loop.at(NS, lambda: seen.append(loop.now()))
    >>> loop.run(lambda: False); seen
    [1.0, 2.0]
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self.events = 0
        self.fibers: list[Fiber] = []
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._turn = _held_lock()  # released by the fiber that parks
        self._random_owner: Fiber | None = None  # whose random state the generators have
        self._outer: Any = None  # the generators' state outside of all fibers
        self._installed: Any = None  # the one that they were given last

    def now(self) -> float:
        return self.now_ns / NS

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        """Schedule an action for that time (or now, if it is past). Events of one moment keep their order."""
        self._count += 1
        heapq.heappush(self._heap, (max(time_ns, self.now_ns), self._count, action))

    def run(self, over: Callable[[], bool]) -> None:
        """Carry out events until ``over``, or until none is left."""
        try:
            while self._heap and not over():
                self.now_ns, _, action = heapq.heappop(self._heap)
                self.events += 1
                action()
        finally:
            self.swap_randomness(None)

    def close(self) -> None:
        """Unwind every fiber that is left."""
        for fiber in self.fibers:
            fiber.kill()
        self.swap_randomness(None)

    def swap_randomness(self, fiber: Fiber | None) -> None:
        """Give the generators that scripts share the state in which this fiber left them; None: the one from outside.
        Only needed when another fiber comes to run: events in between draw nothing."""
        if fiber is self._random_owner:
            return
        now = _randomness(self._installed)
        if self._random_owner is None:
            self._outer = now
        else:
            self._random_owner.randomness = now
        self._random_owner = fiber
        self._installed = self._outer if fiber is None or fiber.randomness is None else fiber.randomness
        _set_randomness(self._installed, now)


class Fiber:
    """``target`` in a thread of its own, when resumed. ``failure``: the exception that it raised."""

    def __init__(self, loop: EventLoop, target: Callable[[], None], name: str, output: TextIO) -> None:
        self.loop, self.name, self.output = loop, name, output
        self.done = self.killed = False
        self.failure: BaseException | None = None
        self._target = target
        self._turn = _held_lock()
        self._began = False
        self._asleep = False
        self._stolen_ns = self._frozen_until_ns = 0
        self._wake = 0  # number of the wait, so that a late alarm does not end the next one
        self.resting = False  # it draws nothing when it resumes: `swap_randomness` is called later
        self.randomness: Any = None  # state of the shared generators, as the fiber left them
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=name, daemon=True)
        loop.fibers.append(self)

    @property
    def runs_here(self) -> bool:
        """Return whether the calling thread is the fiber's."""
        return threading.current_thread() is self._thread

    def resume(self) -> None:
        """Let the fiber run until it parks or ends. Called by the loop."""
        if self.done:
            return
        outer, sys.stdout = sys.stdout, self.output
        if not self.resting:
            self.loop.swap_randomness(self)
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
        """Wait for the fiber. Ctrl-C comes to this thread: it is held back until the fiber has parked, since two threads
        running at once would end all order."""
        interrupted: BaseException | None = None
        while True:
            try:
                self.loop._turn.acquire()
                return interrupted
            except BaseException as error:
                if interrupted is not None:
                    raise  # pressed twice: the fiber does not end
                interrupted = error

    def kill(self) -> None:
        self.killed = True
        if self._began:
            self.resume()
        self.done = True

    def sleep(self, duration_ns: int) -> None:
        """Park for that long, and longer if the fiber was frozen meanwhile. Called by the fiber itself."""
        self._asleep = True
        while duration_ns > 0:
            self.wait(self.loop.now_ns + duration_ns)
            duration_ns, self._stolen_ns = self._stolen_ns, 0
        self._asleep = False

    def freeze(self, duration_ns: int) -> None:
        """Stop the fiber for that long, like a process that is stopped."""
        self._frozen_until_ns = self.loop.now_ns + duration_ns
        if self._asleep:
            self._stolen_ns += duration_ns

    def wait(self, until_ns: int) -> None:
        """Park until then, or until ``rouse``."""
        self._wake += 1
        number = self._wake
        self.loop.at(until_ns, lambda: self._alarm(number))
        self._park()

    def rouse(self) -> None:
        """End the fiber's wait now. Called from events."""
        number = self._wake
        self.loop.at(self.loop.now_ns, lambda: self._alarm(number))

    def _alarm(self, number: int) -> None:
        if number != self._wake:
            return
        if self.loop.now_ns < self._frozen_until_ns and not self._asleep:
            self.loop.at(self._frozen_until_ns, lambda: self._alarm(number))
            return
        self.resume()

    def _park(self) -> None:
        if self.killed:
            raise Killed
        self.loop._turn.release()
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
            self.loop._turn.release()


def _held_lock() -> threading.Lock:
    """Return a lock to hand a turn on: acquiring it waits until the other side releases it. Cheaper than a semaphore."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def _randomness(before: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """Return the state of the generators that scripts share: Python's, torch's and NumPy's, if they are loaded; of
    NumPy's the memory, too. Few scripts draw from NumPy's, and asking for its state is slow: where its memory is as
    ``before``, so is its state, unless it had a normal number in store."""
    torch, memory = sys.modules.get("torch"), _numpy_memory()
    if before is not None and memory == before[2] and not (memory and before[3][3]):
        numbers = before[3]
    else:
        numbers = memory and sys.modules["numpy"].random.get_state()
    return random.getstate(), torch and torch.get_rng_state(), memory, numbers


def _set_randomness(state: tuple[Any, ...], now: tuple[Any, ...]) -> None:
    random.setstate(state[0])
    if state[1] is not None:
        sys.modules["torch"].set_rng_state(state[1])
    if state[3] is not None and state[3] is not now[3]:
        sys.modules["numpy"].random.set_state(state[3])


def _numpy_memory() -> bytes | None:
    """Return the memory of NumPy's shared generator, which is an MT19937: 624 words, and how many of them are used up."""
    numpy = sys.modules.get("numpy")
    return None if numpy is None else ctypes.string_at(numpy.random.get_bit_generator().ctypes.state_address, 625 * 4)
