"""The result of a simulation, in the same figures as a real run's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from taut.core.messages import Statistics
from taut.simulator.faults import Fault
from taut.simulator.scenario import Scenario
from taut.supervisor.view import Outcome, ValidationScores


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """What one worker had done by one moment of virtual time."""

    time_s: float
    rank: int
    steps: int
    samples: int
    bytes_sent: int
    loss: float | None = None
    staleness: float = 0.0


@dataclass(frozen=True)
class Simulated:
    """``wall_s``: virtual seconds from the start of training to its end. ``workers``: by rank, the dead included;
    ``gone``: why workers left or died. ``scores``: of the mean of all replicas, by virtual time, if the script has a
    validation function; ``distances``: consensus distance by virtual time, relative to the mean's norm."""

    scenario: Scenario
    wall_s: float
    workers: Mapping[int, Statistics]
    gone: Mapping[int, str] = field(default_factory=dict)
    history: tuple[HistoryPoint, ...] = ()
    scores: tuple[tuple[float, float], ...] = ()
    distances: tuple[tuple[float, float], ...] = ()
    consensus: float = 0.0
    identical: bool | None = None
    validation: ValidationScores | None = None
    counted: Mapping[str, Any] = field(default_factory=dict)  # of the simulator itself: events, real seconds
    error: str = ""
    outcome: Outcome | None = None  # the supervisor's own, where workers really trained
    phase: int = 0  # of a run that changes its strategy: the one that it ended in
    missed: tuple[Fault, ...] = ()  # faults that did not happen, since the run or their worker ended before
    evaluations: tuple[tuple[float, float], ...] = ()  # in the course of the run: virtual time, the main worker's score
    ended_early: str = ""  # why, if scores or the script ended the run
    misused: bool = False  # the error is the script's misuse of taut
    script_error: str = ""  # of the first worker whose script raised: its traceback
