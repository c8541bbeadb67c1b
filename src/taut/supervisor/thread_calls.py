"""What other threads want the supervisor's thread to do: it alone may touch the run's state."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

from taut.supervisor.run.actions import Action

Order = Callable[[float], list[Action]]  # of the time: what is to be carried out


class ThreadCalls:
    """``wake`` ends the wait of the thread that takes them.

    >>> orders = ThreadCalls(wake=lambda: None)
    >>> orders.give(lambda now: [])
    >>> [order(0.0) for order in orders.take()]
    [[]]
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self._given: queue.SimpleQueue[Order] = queue.SimpleQueue()

    def give(self, order: Order) -> None:
        """From any thread."""
        self._given.put(order)
        self.wake()

    def take(self) -> Iterator[Order]:
        """In the order in which they were given; also what is given meanwhile."""
        while not self._given.empty():
            yield self._given.get()
