"""The plan of a run: what is fixed before the first worker comes. A record; prepare.py makes it from the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from taut.config import PATIENCE_S
from taut.specs import Interval

if TYPE_CHECKING:
    from taut.strategies.compatibility import Combination


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What is fixed before the first worker comes."""

    run: str
    seed: int
    workers: int  # how many the run waits for
    settings: str  # JSON
    host: str = ""  # the engine's: its process numbers are of this host
    strategy: str = ""  # its name
    finish: str = "any"  # how the model is chosen: average, best, any or ensemble
    agrees: bool = True  # the strategy leaves equal replicas
    streams: bool = False  # they are equal because every update of each reaches all
    admits_late: bool = True  # workers may join in mid-run
    checkpoint_every: Interval | None = None
    topology: str = "complete"  # who hears whom
    majority: bool = False  # in lock-step: of two halves that cannot hear each other, one at most goes on
    patience_s: float = float(PATIENCE_S)  # for workers without whom the run cannot go on

    @classmethod
    def of(cls, chosen: Combination, **more: Any) -> RunPlan:
        """Return the plan of a run with this strategy, topology and finish."""
        names = ("finish", "agrees", "streams", "admits_late", "topology", "majority")
        return cls(**{name: getattr(chosen, name) for name in names}, **more)

    @property
    def elects(self) -> bool:
        """Workers that hear no supervisor may go on without those they have lost, if they are a majority."""
        return self.majority and self.admits_late
