"""The case of each seed of the soak: a strategy with topology and codec, a cluster, and a plan of faults."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from taut.errors import Misuse, TautError
from taut.simulator.faults import newcomers
from taut.simulator.models.rng import Rng
from taut.strategies.compatibility import combine
from taut.strategies.phases import parse_schedule
from taut.strategies.registry import REGISTRY
from taut.testing.fault_plan import FaultPlan
from taut.testing.soak.laws import TALLY, broken_laws

if TYPE_CHECKING:
    from taut.simulator.trace import Trace


def _short(name: str) -> str:
    """Return the strategy with settings that suit a run of a few steps."""
    short = REGISTRY[name].info.short
    return f"{name}:{short}" if short else name


JOB = Path(__file__).with_name("job.py")
STEP_S = 0.1
LONG_STEP_S = 2.0  # in one of so many runs, which then last until a worker that was evicted is back
LONG_STEPS_OF = 6
STEPS = 16  # of each worker, about
BATCH = 4
EPOCHS = 2
LIMIT_S = 200.0  # of virtual time: far beyond any silence that is waited for
LONG_LIMIT_S = 1000.0  # where steps are long
PHASES = (
    "sync for 5 steps, then async",
    "async for 5 steps, then sync",
    "averaging:every=3 for 6 steps, then sync",
    "sync for 4 steps, then gossip",
    "ssp:2 for 4 steps, then dpsgd for 4 steps, then async",
)  # they share a turn
TURNS = (*((_short(name),) for name in sorted(REGISTRY)), PHASES, ("ssp:2",))
STRATEGIES = tuple(strategy for turn in TURNS for strategy in turn)
TOPOLOGIES = ("", "ring", "torus", "star", "exponential:directed=no", "tree", "complete")
CODECS = ("", "", "threshold", "dense")


@dataclass(frozen=True)
class Case:
    """One run of the soak."""

    seed: int
    strategy: str
    topology: str
    codec: str
    workers: int
    plan: FaultPlan
    step_s: float = STEP_S

    def __str__(self) -> str:
        chosen = {"topology": self.topology, "codec": self.codec}
        wired = "".join(f" --{what} {word}" for what, word in chosen.items() if word)
        return f"--workers {self.workers} --strategy {self.strategy!r}{wired}, steps of {self.step_s:g} s: {self.plan}"


@dataclass(frozen=True)
class CaseResult:
    """The result of a case. ``broken``: laws, or the exception."""

    case: Case
    broken: tuple[str, ...]
    cpu_s: float
    virtual_s: float = 0.0


def case_of(seed: int) -> Case:
    """Return the case of a seed: strategies take turns, all else is drawn. A run in phases has a newcomer in any case.

    >>> case_of(3) == case_of(3), case_of(3).strategy == case_of(4).strategy
    (True, False)
    """
    turn = TURNS[seed % len(TURNS)]
    strategy = turn[seed // len(TURNS) % len(turn)]
    dice = Rng(seed, "case")
    workers = 4 + dice.randrange(3)
    wishes = [(one, other) for one in TOPOLOGIES for other in CODECS]
    while True:
        topology, codec = wishes[dice.randrange(len(wishes))]
        try:
            combine(strategy, topology or None, codec or None, None, workers)
        except Misuse:
            continue  # those do not go together
        break
    step_s = LONG_STEP_S if Rng(seed, "pace").randrange(LONG_STEPS_OF) == 0 else STEP_S
    plan = FaultPlan.random(seed, workers, STEPS * step_s, strategy)
    if turn is PHASES and not any(map(newcomers, plan.faults)):
        plan = plan.join(1).at(round(0.8 * STEPS * step_s * Rng(seed, "arrival").random(), 3))
    return Case(seed, strategy, topology, codec, workers, plan, step_s)


def check_case(case: Case, trace: Trace | None = None) -> CaseResult:
    """Run the case, and return the laws that it broke."""
    from taut.testing.faults.faulty_run import run_with_faults

    samples = STEPS * BATCH * case.workers // EPOCHS
    TALLY.clear()
    began_s = time.process_time()
    try:
        found = run_with_faults(
            JOB,
            case.plan,
            workers=case.workers,
            strategy=case.strategy,
            args=("--samples", str(samples), "--epochs", str(EPOCHS), "--momentum", str(_momentum(case.strategy))),
            step_s=case.step_s,
            limit_s=LIMIT_S if case.step_s == STEP_S else LONG_LIMIT_S,
            trace=trace,
            topology=case.topology,
            codec=case.codec,
        )
    except (TautError, AssertionError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        return CaseResult(case, (f"{type(error).__name__}: {error}",), time.process_time() - began_s)
    broken = broken_laws(found, TALLY, samples, EPOCHS)
    return CaseResult(case, tuple(broken), time.process_time() - began_s, found.wall_s)


def _momentum(strategy: str) -> float:
    """Return a momentum where all make the same steps: a newcomer must be given its buffer, too."""
    return 0.9 if any(choice.name == "sync" for choice in parse_schedule(strategy).choices) else 0.0


def check_seed(seed: int) -> CaseResult:
    """Run the seed's case."""
    return check_case(case_of(seed))
