"""The framework-free level (FAST): fill a worker with one iteration and with how an arriving update is included."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from taut.codecs.wire.payload import Header, Kind, build, header, read
from taut.codecs.wire.validate import validate
from taut.errors import MalformedMessage, Misuse
from taut.worker.model.snapshot import Snapshot

Vector = npt.NDArray[np.float32]


class Worker(ABC):
    """One participant. Fill in ``iterate`` and ``include``; the framework moves the updates.

    >>> class Counter(Worker):
    ...     total = np.zeros(1, np.float32)
    ...     def iterate(self):
    ...         self.total = self.total + 1
    ...         return np.ones(1, np.float32)
    ...     def include(self, update, sender):
    ...         self.total = self.total + update
    >>> a, b = Counter(), Counter()
    >>> payload = a.emit(); b.absorb(payload, sender=0); float(b.total[0])
    1.0
    """

    @abstractmethod
    def iterate(self) -> Vector | None:
        """Make one iteration. Return the change to share with the neighbours, or None for nothing this time."""

    @abstractmethod
    def include(self, update: Vector, sender: int) -> None:
        """Include an arriving update."""

    # What follows has defaults that share dense float32 vectors; workers with a codec of their own replace it.

    def emit(self) -> bytes | None:
        """Make one iteration; return its update as it goes over the wire."""
        update = self.iterate()
        if update is None:
            return None
        try:
            values = np.ascontiguousarray(update, np.float32).ravel()
        except (TypeError, ValueError):
            given = f"{type(self).__name__}.iterate(), which returned a {type(update).__name__}"
            raise Misuse(given, "an update as an array, or None where there is none") from None
        if values.size == 0:
            return None
        return build(Header(Kind.DENSE, 0.0, 0, values.size, values.size), values)

    def absorb(self, payload: bytes, sender: int, checked: object = None) -> None:
        """Include an update as it came over the wire; ``MalformedMessage`` if it is none. ``checked``: what was found
        when it arrived, for workers with a codec of their own."""
        size = header(payload).length
        if validate(payload, size).kind is not Kind.DENSE:
            raise MalformedMessage(f"an update of kind {header(payload).kind.name} for a worker without a codec")
        self.include(read(payload, np.float32, size), sender)

    def state(self) -> Snapshot:
        """Return everything that a worker which joins later needs."""
        raise TypeError(f"{type(self).__name__} has no state(): nobody can join it in mid-run")

    def load(self, state: Snapshot) -> None:
        """Take over another worker's state."""
        raise TypeError(f"{type(self).__name__} has no load(): it cannot join in mid-run")
