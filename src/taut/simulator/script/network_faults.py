"""The effect of a network's faults on a message: lost, late, twice, or none."""

from __future__ import annotations

import math
from collections.abc import Iterable

from taut.simulator.faults import Fault, Loss, Partition, Reorder, Repeat, concerns
from taut.simulator.models.rng import Rng

NS = 1_000_000_000
ON_TIME = (0,)


class NetworkFaults:
    """``delays_ns`` is called once for each message, when it is sent, ``is_cut`` again when it arrives: a message under
    way when a cable is cut is lost. Draws are per route: one pair's messages do not change another's.

    >>> faults = NetworkFaults([Loss(0, 1, from_s=1.0, until_s=2.0)], Rng(0))
    >>> [faults.delays_ns(0, 1, round(at_s * NS)) for at_s in (0.5, 1.5, 2.0)]
    [(0,), (), (0,)]
    """

    def __init__(self, faults: Iterable[Fault], rng: Rng) -> None:
        self._spans = [
            (round(fault.from_s * NS), math.inf if fault.until_s is None else round(fault.until_s * NS), fault)
            for fault in faults
            if isinstance(fault, Partition | Loss | Repeat | Reorder)
        ]
        self._key = rng.key
        self._rngs: dict[tuple[int, int], Rng] = {}

    def delays_ns(self, sender: int, to: int, now_ns: int) -> tuple[int, ...]:
        """Return how much later than it should each copy of the message arrives, in nanoseconds; none if it is lost."""
        if not self._spans:
            return ON_TIME
        if self.is_cut(sender, to, now_ns):
            return ()
        late_ns, again_ns = 0, -1
        for fault in self._now(now_ns):
            match fault:
                case Loss(p=p) if concerns(fault, sender, to) and self._draw(sender, to) < p:
                    return ()
                case Repeat(p=p, by_s=by_s) if concerns(fault, sender, to) and self._draw(sender, to) < p:
                    again_ns = 1 + int(by_s * NS * self._draw(sender, to))
                case Reorder(p=p, by_s=by_s) if concerns(fault, sender, to) and self._draw(sender, to) < p:
                    late_ns = 1 + int(by_s * NS * self._draw(sender, to))
                case _:
                    pass
        return (late_ns,) if again_ns < 0 else (late_ns, again_ns)

    def is_cut(self, sender: int, to: int, now_ns: int) -> bool:
        """Return whether nothing gets from ``sender`` to ``to`` now."""
        return any(
            fault.parts(sender, to)
            if isinstance(fault, Partition)
            else isinstance(fault, Loss) and fault.p >= 1.0 and concerns(fault, sender, to)
            for fault in self._now(now_ns)
        )

    def _now(self, now_ns: int) -> list[Partition | Loss | Repeat | Reorder]:
        return [fault for from_ns, until_ns, fault in self._spans if from_ns <= now_ns < until_ns]

    def _draw(self, sender: int, to: int) -> float:
        if (sender, to) not in self._rngs:
            self._rngs[sender, to] = Rng(self._key, "fate", sender, to)
        return self._rngs[sender, to].random()
