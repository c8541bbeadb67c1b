"""The laws that hold after a run, with any faults in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from taut.core.messages import SUPERVISOR
from taut.simulator import faults as f
from taut.simulator.result import Simulated
from taut.strategies.compatibility import agrees, codec_for, codec_name, combine
from taut.strategies.phases import parse_schedule
from taut.strategies.registry import on_topology
from taut.supervisor.faults.follow_election import LEFT_OUT
from taut.supervisor.view import Outcome
from taut.testing.faults.random_plans import SHORT_S

BACK_S = 15.0  # after it was heard again, anybody is back by then


@dataclass
class Tally:
    """Counts of how often a step with each sample was begun, and ended, by the workers of the job themselves: a count
    that owes nothing to the supervisor's. In between a worker may have died."""

    begun: Counter[int] = field(default_factory=Counter)
    ended: Counter[int] = field(default_factory=Counter)

    def clear(self) -> None:
        self.begun.clear()
        self.ended.clear()


TALLY = Tally()  # of the simulation that this process is in: one at a time


def broken_laws(found: Simulated, tally: Tally, samples: int, epochs: int) -> list[str]:
    """Return the laws that the run broke, in words; none if all is well."""
    outcome = found.outcome
    assert outcome is not None
    if _no_majority(found, outcome):
        return [*_nobody_wronged(found, outcome)]
    laws = [*_ended(found, outcome), *_agree(found, outcome), *_trained(found, outcome, tally, samples, epochs)]
    return [*laws, *_nobody_wronged(found, outcome), *_all_back(found, outcome)]


def _no_majority(found: Simulated, outcome: Outcome) -> bool:
    """Return whether a run in lock-step waited in vain for a majority, as it must where the majority was lost."""
    workers = found.scenario.workers
    heard = workers - len(_out_of_sight(found))
    return "goes on only with a majority" in outcome.error and 2 * (heard + 1) <= workers + 1


def _ended(found: Simulated, outcome: Outcome) -> Iterator[str]:
    """Check that the run ended with exit code 0 and a model, since two workers were spared."""
    if outcome.exit_code != 0 or outcome.model is None:
        yield f"exit code {outcome.exit_code}: {found.error or outcome.failures}"


def _agree(found: Simulated, outcome: Outcome) -> Iterator[str]:
    """Check that replicas are equal bit for bit, where they must be."""
    given = found.scenario
    chosen = combine(given.strategy, given.topology or None, given.codec or None, given.finish or None, given.workers)
    choice = on_topology(parse_schedule(given.strategy).choices[found.phase], chosen.topology)  # that it ended with
    alike = choice.is_method and choice.kind.hands_over  # all make the same steps
    codec = codec_name(codec_for(choice, [chosen.codec]))
    exact = alike or chosen.finish == "average" or (agrees(choice) and codec in ("tether", "threshold"))
    if exact and not (outcome.exact and outcome.identical):
        yield f"the replicas differ (identical {outcome.identical}, exact {outcome.exact})"


def _trained(found: Simulated, outcome: Outcome, tally: Tally, samples: int, epochs: int) -> Iterator[str]:
    """Check that each sample was trained once in each pass, by the supervisor's account and by the workers' own; again
    only where it was uncertain."""
    faults = found.scenario.faults
    if outcome.samples_undone:
        yield f"{outcome.samples_undone} samples were not trained on, by the supervisor's account"
    cut_short = {sample for sample in tally.begun if tally.begun[sample] > tally.ended[sample]}
    missed = [sample for sample in range(samples) if tally.ended[sample] < epochs and sample not in cut_short]
    if missed:
        yield f"samples {missed[:8]} were trained on fewer than {epochs} times, by the workers' own account"
    again = sum(tally.begun.values()) - samples * epochs
    if again > outcome.samples_again and not any(isinstance(fault, f.KillSupervisor) for fault in faults):
        yield f"{again} samples were trained on again, of which the supervisor counted {outcome.samples_again}"
    certain = not any(_makes_uncertain(fault) for fault in faults)
    if certain and (again or outcome.samples_again):
        yield f"{max(again, outcome.samples_again)} samples were trained on again, though nobody died and nothing was cut"


def _makes_uncertain(fault: object) -> bool:
    """Return whether it may be unknown, after this fault, which samples were trained on."""
    return isinstance(fault, f.Fail | f.Restart | f.Departure | f.Pause | f.Partition | f.KillSupervisor) or (
        isinstance(fault, f.Loss) and SUPERVISOR in (fault.one, fault.other)
    )


def _nobody_wronged(found: Simulated, outcome: Outcome) -> Iterator[str]:
    """Check that no process has two ranks at once, and that no worker is evicted that was never out of the
    supervisor's sight for long."""
    if sorted(outcome.workers) != list(range(len(outcome.workers))):
        yield f"ranks with gaps: {sorted(outcome.workers)}"
    ranks_of = Counter(row.pid - 1 for row in outcome.workers.values() if row.state != "gone")
    if ranks_of and max(ranks_of.values()) > 1:
        yield f"a process with several ranks at once: {ranks_of}"
    may_go = _out_of_sight(found)
    away = any(isinstance(fault, f.KillSupervisor) for fault in found.scenario.faults)
    elects = away or 2 * len(may_go) > found.scenario.workers  # most workers may have gone on without the supervisor
    for rank, row in outcome.workers.items():
        left_out = elects and row.reason == LEFT_OUT
        if row.state == "gone" and row.pid - 1 not in may_go and not left_out:
            yield f"worker {rank} was given up though it was there all the time: {row.reason}"


def _all_back(found: Simulated, outcome: Outcome) -> Iterator[str]:
    """Check that every worker that was evicted for its silence alone is back, if the run went on for long enough."""
    given = found.scenario
    chosen = combine(given.strategy, given.topology or None, given.codec or None, given.finish or None, given.workers)
    if chosen.returns == "no" or any(isinstance(fault, f.Slow | f.Throttle | f.KillSupervisor) for fault in given.faults):
        return  # it cannot, or nobody knows how long anything takes
    ended = {fault.rank for fault in given.faults if isinstance(fault, f.Fail | f.Restart | f.Departure)}
    silences = {worker: until_s for worker, until_s in _healed(found).items() if worker not in ended}
    seen = {row.pid - 1 for row in outcome.workers.values() if row.state != "gone"}
    for worker, until_s in silences.items():
        if until_s + BACK_S < found.wall_s and worker not in seen:
            yield f"worker {worker} of the start was heard again at {until_s:g} s, and is not back"


def _healed(found: Simulated) -> dict[int, float]:
    """Return when each worker was heard again, of those that were silent at a time that is known."""
    until: defaultdict[int, float] = defaultdict(float)
    for fault in found.scenario.faults:
        match fault:
            case f.Pause(rank, for_s=for_s):
                until[rank] = max(until[rank], 1e9 if fault.at_step is not None else fault.at_s + for_s)
            case f.Partition(until_s=until_s) | f.Loss(until_s=until_s):
                for worker in range(found.scenario.workers):
                    until[worker] = max(until[worker], until_s or 1e9)
            case _:
                pass
    return dict(until)


def _out_of_sight(found: Simulated) -> set[int]:
    """Return the workers that died, left, or were silent for so long that they may be evicted."""
    silent_s: defaultdict[int, float] = defaultdict(float)
    workers = found.scenario.workers + sum(f.newcomers(fault) for fault in found.scenario.faults)
    for fault in found.scenario.faults:
        match fault:
            case f.Fail(rank) | f.Restart(rank) | f.Departure(rank):
                silent_s[rank] += 1e9
            case f.Pause(rank, for_s=for_s):
                silent_s[rank] += for_s
            case f.Partition(from_s=from_s, until_s=until_s):
                for worker in range(workers):
                    if fault.parts(worker, SUPERVISOR):
                        silent_s[worker] += (until_s or 1e9) - from_s
            case f.Loss(one, other, from_s=from_s, until_s=until_s) if SUPERVISOR in (one, other):
                for end in (one, other):
                    if end is not None and end >= 0:
                        silent_s[end] += (until_s or 1e9) - from_s
            case _:
                pass
    return {worker for worker, silence_s in silent_s.items() if silence_s > SHORT_S}
