"""The plan of a run: settings that are fixed before the first worker comes. prepare.py makes it."""

from __future__ import annotations

from dataclasses import dataclass

from taut.specs import Interval

PATIENCE_S = 120.0  # by default; workers wait as long for a supervisor


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The fixed settings of a run."""

    run: str
    seed: int
    workers: int  # how many the run waits for
    settings: str  # JSON
    host: str = ""  # of the engine: its process numbers are of this host
    strategy: str = ""  # its name
    finish: str = "any"  # how the model is chosen: average, best, any or ensemble
    agrees: bool = True  # the strategy leaves equal replicas
    streams: bool = False  # replicas are equal because every update reaches all
    admits_late: bool = True  # workers may join in mid-run
    checkpoint_every: Interval | None = None
    topology: str = "complete"  # by name
    majority: bool = False  # in lock-step: of two halves that cannot hear each other, at most one goes on
    patience_s: float = PATIENCE_S  # for workers that the run cannot go on without

    @property
    def elects(self) -> bool:
        """Return whether a majority of workers may go on without a supervisor and without lost workers."""
        return self.majority and self.admits_late
