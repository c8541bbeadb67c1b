"""Predictions: a candidate, simulated on the machines that were probed.

    samples/s = samples of all / (their time at the pace of the second half + the time from the last step to the end)
    efficiency = samples/s / samples/s of workers that never talk, in as many steps

The pace is the sum of all workers': a faster one gets more of the data. A run ends when all that was sent has come: a
strategy that never waits, but sends more than its links carry, gains nothing by it. Pace and bytes are of the second half
of the simulated steps, since a run begins with other ones: a worker first finds out after how many steps to exchange.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from taut.adviser.candidates import Candidate, independent
from taut.adviser.machines import costs_of, links_of, speeds_of
from taut.adviser.record import Probe
from taut.core.files import write_atomically
from taut.errors import RunFailed, TautError
from taut.plugins import CODECS, STRATEGIES, TOPOLOGIES
from taut.simulator.models.costs import CodecCost, Costs
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario

HOPELESS = 8.0
LEAST_S, MOST_STEPS = 1.0, 1000  # of a simulated run: short steps must not be lost in its beginning and its end
Simulate = Callable[[Scenario], Simulated]


class Figures(msgspec.Struct, frozen=True):
    """The figures of one simulated run. ``step_s``: between two steps of a worker, on average; ``wait_share``,
    ``exchange_share``: of the time; ``bytes_per_step``: sent by one worker, on average; ``staleness``: in steps."""

    samples_per_s: float
    step_s: float
    bytes_per_step: float
    wait_share: float
    exchange_share: float
    staleness: float


@dataclass(frozen=True)
class Prediction:
    """A candidate, its figures, and what share of the speed of workers that never talk it reaches."""

    candidate: Candidate
    figures: Figures
    efficiency: float = 1.0
    steps: int = 0  # of each worker in the simulated run

    @property
    def bytes_per_s(self) -> float:
        """Return the bytes per second that one worker sends."""
        return self.figures.bytes_per_step / self.figures.step_s if self.figures.step_s > 0.0 else 0.0


def scenario(
    probe: Probe, candidate: Candidate, workers: int, steps: int | None = None, costs: Costs | None = None
) -> Scenario:
    """Return a short run of this candidate on the probed machines. ``costs``: of codecs that the probe did not see."""
    costs = costs_of(probe, costs)
    batches = sorted(worker.batch for worker in probe.workers)
    return Scenario(
        workers=workers,
        strategy=candidate.strategy,
        topology=candidate.resolved.topology,
        codec=candidate.resolved.codec,
        finish=candidate.resolved.finish,
        steps=steps or steps_of(probe, candidate),
        parameters=probe.parameters,
        batch=batches[len(batches) // 2],
        links=links_of(probe, costs.message_s),
        speeds=speeds_of(probe),
        costs=costs,
    )


def steps_of(probe: Probe, candidate: Candidate) -> int:
    """Return how many steps of each worker are simulated."""
    wanted = round(LEAST_S / median(worker.mean_step_s for worker in probe.workers))
    return candidate.steps if candidate.lockstep else max(candidate.steps, min(MOST_STEPS, wanted))


class Pace(NamedTuple):
    """The pace of the settled part of a run: steps per second of all workers together, bytes sent per step, and when the
    last worker's steps end."""

    steps_per_s: float
    bytes_per_step: float
    until_s: float


def pace_of(points: Iterable[tuple[int, float, int, int]], first: int) -> Pace | None:
    """Return the pace from step ``first`` on; None if there is no such part. ``points``: a worker's rank, a time, how
    many steps the worker had made, and how many bytes it had sent, in the order of time.

    >>> pace_of([(0, 0.0, 0, 0), (0, 1.0, 10, 900), (0, 3.0, 30, 1100), (1, 1.0, 10, 0), (1, 3.0, 20, 200)], first=10)
    Pace(steps_per_s=15.0, bytes_per_step=13.333333333333334, until_s=3.0)
    """
    begun: dict[int, tuple[float, int, int]] = {}
    ended: dict[int, tuple[float, int, int]] = {}
    for rank, time_s, steps, nbytes in points:
        if steps >= first:
            begun.setdefault(rank, (time_s, steps, nbytes))
            if rank not in ended or steps > ended[rank][1]:
                ended[rank] = (time_s, steps, nbytes)
    made = [(ended[rank][0] - at[0], ended[rank][1] - at[1], ended[rank][2] - at[2]) for rank, at in begun.items()]
    total = sum(each[1] for each in made)
    if not made or not all(each[0] > 0.0 for each in made):
        return None
    per_s = sum(each[1] / each[0] for each in made)
    return Pace(per_s, sum(each[2] for each in made) / total, max(each[0] for each in ended.values()))


def figures_of(simulated: Simulated) -> Figures:
    """Return the figures of all workers together."""
    rows = list(simulated.workers.values())
    longest_s = max((row.wall_s for row in rows), default=0.0)
    total_s = sum(row.wall_s for row in rows) or 1.0
    steps = sum(row.steps for row in rows) or 1
    points = ((one.rank, one.time_s, one.steps, one.bytes_sent) for one in simulated.history)
    pace = pace_of(points, (simulated.scenario.steps or 0) // 2)
    if pace is None:
        pace = Pace(steps / (longest_s or 1.0), sum(row.bytes_sent for row in rows) / steps, longest_s)
    took_s = steps / pace.steps_per_s + max(0.0, longest_s - pace.until_s)
    return Figures(
        samples_per_s=sum(row.samples for row in rows) / took_s,
        step_s=len(rows) / pace.steps_per_s,
        bytes_per_step=pace.bytes_per_step,
        wait_share=sum(row.wait_s for row in rows) / total_s,
        exchange_share=sum(row.encode_s + row.send_s + row.merge_s for row in rows) / total_s,
        staleness=sum(row.staleness * row.steps for row in rows) / steps,
    )


def predict(
    probe: Probe,
    listed: Sequence[Candidate],
    workers: int,
    *,
    simulate: Simulate,
    costs: Costs | None = None,
    cache: Cache | None = None,
    progress: Callable[[Candidate], None] | None = None,
) -> tuple[list[Prediction], dict[str, str]]:
    """Return the predictions in the order of the candidates, and the candidates that the simulator cannot run, with
    its reasons. ``progress`` is called before each; a scenario in ``cache`` is not simulated again."""
    cache = cache if cache is not None else Cache(None)
    found: list[tuple[Candidate, Figures]] = []
    refused: dict[str, str] = {}
    for candidate in listed:
        if progress is not None:
            progress(candidate)
        before = [one for one, _ in found]
        why_not = too_much(probe, candidate, workers, costs) or outdone(probe, candidate, before, costs)
        if why_not:
            refused[candidate.name] = why_not
            continue
        try:
            found.append((candidate, _figures(scenario(probe, candidate, workers, costs=costs), simulate, cache)))
        except TautError as error:
            refused[candidate.name] = str(error)
    alone = {
        steps: _figures(scenario(probe, independent(workers), workers, steps, costs), simulate, cache).samples_per_s
        for steps in sorted({steps_of(probe, one) for one, _ in found})
    }
    made = [(one, each, steps_of(probe, one)) for one, each in found]
    return [Prediction(one, each, each.samples_per_s / alone[steps], steps) for one, each, steps in made], refused


def too_much(probe: Probe, candidate: Candidate, workers: int, costs: Costs | None = None) -> str:
    """Return why the candidate is not worth simulating (empty if it is): its link needs longer than ``HOPELESS`` steps
    for the bytes of one step. Only of strategies that flood: they would drown, and the simulator in their messages."""
    if not candidate.resolved.strategy.kind.info.floods or not probe.links:
        return ""
    cost = costs_of(probe, costs).codec(candidate.resolved.codec)
    nbytes = cost.bits_per_element * probe.parameters / 8.0 * (workers - 1)
    takes_s = nbytes / median(link.bytes_per_s for link in probe.links)
    step_s = median(worker.mean_step_s for worker in probe.workers)
    if takes_s <= HOPELESS * step_s:
        return ""
    return f"what it sends after a step of {step_s:.3g} s would take its link {takes_s:.3g} s"


def outdone(probe: Probe, candidate: Candidate, before: Sequence[Candidate], costs: Costs | None = None) -> str:
    """Return why the candidate's codec makes it slower for certain (empty if it may be faster): a codec that is
    preferred to it, with which the same strategy was simulated, sends no more and takes no longer. ``dense`` is always
    simulated: the others are held against it."""
    known, name = costs_of(probe, costs), candidate.resolved.codec
    if name == "dense":
        return ""
    mine = known.codec(name)
    for other in before:
        if (other.strategy, other.resolved.topology) != (candidate.strategy, candidate.resolved.topology):
            continue
        theirs = known.codec(other.resolved.codec)
        pairs = zip(_work(mine, probe.parameters), _work(theirs, probe.parameters), strict=True)
        if other.resolved.codec != name and all(one >= another for one, another in pairs):
            bits = f"{mine.bits_per_element:.3g} bits per parameter against {theirs.bits_per_element:.3g}"
            return f"{name} says no less than {other.resolved.codec} ({bits}), and takes no less time"
    return ""


def _work(cost: CodecCost, parameters: int) -> tuple[float, float, float]:
    """Return what one update takes: bytes, seconds to make it, seconds to include it."""
    nbytes = cost.nbytes(parameters)
    return nbytes, cost.encode_s(parameters), cost.absorb_s(nbytes)


def _figures(run: Scenario, simulate: Simulate, cache: Cache) -> Figures:
    figures = cache.get(run)
    if figures is None:
        simulated = simulate(run)
        if simulated.error:
            raise RunFailed(simulated.error)
        figures = figures_of(simulated)
        cache.keep(run, figures)
    return figures


class Cache:
    """Predictions that were made, in a file beside the probe (None: in memory only). Where the simulator, a strategy or a
    codec has changed, predictions are made anew."""

    def __init__(self, path: Path | None) -> None:
        self.path, self._code = path, ""
        self._known: dict[str, Figures] = {}
        if path is not None:
            with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):  # none yet, or unreadable
                self._known = msgspec.json.decode(path.read_bytes(), type=dict[str, Figures])

    def get(self, run: Scenario) -> Figures | None:
        return self._known.get(self._key(run))

    def keep(self, run: Scenario, figures: Figures) -> None:
        """Write the figures at once, so that an interrupted command resumes here."""
        self._known[self._key(run)] = figures
        if self.path is None:
            return
        try:
            write_atomically(self.path, msgspec.json.encode(self._known))
        except OSError:
            self.path = None  # a folder that cannot be written to costs time, no more

    def _key(self, run: Scenario) -> str:
        self._code = self._code or code_digest()
        return hashlib.blake2b(f"{self._code} {run!r}".encode(), digest_size=16).hexdigest()


def code_digest() -> str:
    """Return a digest of the source that decides a prediction, that of other packages' classes included."""
    import taut

    root = Path(taut.__file__).parent
    parts = ("simulator", "strategies", "codecs", "collectives")
    files = [path for part in parts for path in (root / part).rglob("*.py")]
    kinds = [kind for registry in (STRATEGIES, CODECS, TOPOLOGIES) for kind in registry.values()]
    files += {Path(inspect.getfile(kind)) for kind in kinds if not kind.__module__.startswith("taut.")}
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()
