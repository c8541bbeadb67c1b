"""The plan of a run: settings that are fixed before the first worker comes. prepare.py makes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from taut.config import PATIENCE_S
from taut.specs import EarlyStop, Interval

if TYPE_CHECKING:
    from taut.strategies.compatibility import Combination
    from taut.strategies.rate_scaling import RateScaling


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The fixed settings of a run."""

    run: str
    seed: int
    workers: int  # how many the run waits for
    settings: str  # JSON
    host: str = ""  # of the engine: its process numbers are of this host
    strategy: str = ""  # its name
    finish: str = "any"  # how the model is chosen: one of ``FINISHES``
    agrees: bool = True  # the strategy leaves equal replicas
    streams: bool = False  # replicas are equal because every update reaches all
    admits_late: bool = True  # workers may join in mid-run
    checkpoint_every: Interval | None = None
    early_stop: EarlyStop | None = None
    part: int = 0  # of the model, that the run trains, where workers are islands
    topology: str = "complete"  # by name
    majority: bool = False  # in lock-step: of two halves that cannot hear each other, at most one goes on
    phases: int = 1  # strategies, one after the other
    resumed: bool = False  # it continues from a checkpoint
    resync: int = 0  # steps between agreements on the state, where processors round differently
    tethered: bool = False  # a phase has the codec tether, whose slack can be changed
    cannot_pause: str = ""  # why no worker can be paused, as in "in a run of islands"
    cannot_scale: str = ""  # why learning rates cannot be changed from outside
    rate_scaling: RateScaling | None = None  # of learning rates, by the number of workers
    patience_s: float = float(PATIENCE_S)  # for workers that the run cannot go on without

    @classmethod
    def of(cls, chosen: Combination, **more: Any) -> RunPlan:
        """Return the plan of a run with this strategy, topology and finish."""
        names = ("finish", "agrees", "streams", "admits_late", "topology", "majority", "phases", "resync")
        return cls(**{name: getattr(chosen, name) for name in names}, **more)

    @property
    def elects(self) -> bool:
        """Return whether a majority of workers may go on without a supervisor and without lost workers."""
        return self.majority and self.admits_late
