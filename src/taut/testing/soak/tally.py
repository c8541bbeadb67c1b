"""What the soak's job has trained on, told by the workers themselves: a count that owes nothing to the supervisor's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """``begun`` and ``ended``: by sample, how often a step with it was. In between a worker may have died."""

    begun: Counter[int] = field(default_factory=Counter)
    ended: Counter[int] = field(default_factory=Counter)

    def clear(self) -> None:
        self.begun.clear()
        self.ended.clear()


TALLY = Tally()  # of the simulation that this process is in: one at a time
