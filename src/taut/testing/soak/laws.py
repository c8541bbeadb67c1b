"""What must hold after a run, whatever went wrong in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from taut.core.messages import SUPERVISOR
from taut.simulator.faults import (
    Dismiss,
    Fail,
    KillSupervisor,
    Loss,
    Partition,
    Pause,
    Restart,
    Slow,
    Throttle,
    newcomers,
)
from taut.simulator.result import Simulated
from taut.strategies.compatibility import agrees, codec_for, codec_name, combine
from taut.strategies.phases import parse_schedule
from taut.strategies.registry import on_topology
from taut.supervisor.faults.follow_election import LEFT_OUT
from taut.testing.faults.random_plans import SHORT_S
from taut.testing.soak.tally import Tally

BACK_S = 15.0  # after it was heard again, anybody is back by then


def broken_laws(found: Simulated, tally: Tally, samples: int, epochs: int) -> list[str]:
    """Which laws the run broke, in words; none if all is well."""
    if _no_majority(found):
        return [*_nobody_wronged(found)]
    laws = [*_ended(found), *_agree(found), *_trained(found, tally, samples, epochs), *_nobody_wronged(found)]
    return [*laws, *_all_back(found)]


def _no_majority(found: Simulated) -> bool:
    """A run in lock-step waited in vain for a majority, as it must where that was lost."""
    outcome, workers = found.outcome, found.scenario.workers
    assert outcome is not None
    heard = workers - len(_out_of_sight(found))
    return "goes on only with a majority" in outcome.error and 2 * (heard + 1) <= workers + 1


def _ended(found: Simulated) -> Iterator[str]:
    """With exit code 0 and a model, since two workers were spared."""
    outcome = found.outcome
    assert outcome is not None
    if outcome.exit_code != 0 or outcome.model is None:
        yield f"exit code {outcome.exit_code}: {found.error or outcome.failures}"


def _agree(found: Simulated) -> Iterator[str]:
    """Where the replicas must be equal bit for bit, they are."""
    given, outcome = found.scenario, found.outcome
    assert outcome is not None
    chosen = combine(given.strategy, given.topology or None, given.codec or None, given.finish or None, given.workers)
    choice = on_topology(parse_schedule(given.strategy).choices[found.phase], chosen.topology)  # that it ended with
    alike = choice.is_method and choice.kind.hands_over  # all make the same steps
    codec = codec_name(codec_for(choice, [chosen.codec]))
    exact = alike or chosen.finish == "average" or (agrees(choice) and codec in ("tether", "threshold"))
    if exact and not (outcome.exact and outcome.identical):
        yield f"the replicas differ (identical {outcome.identical}, exact {outcome.exact})"


def _trained(found: Simulated, tally: Tally, samples: int, epochs: int) -> Iterator[str]:
    """Each sample once in each pass, by the supervisor's account and by the workers' own; again only where it was
    uncertain."""
    outcome, faults = found.outcome, found.scenario.faults
    assert outcome is not None
    if outcome.samples_undone:
        yield f"{outcome.samples_undone} samples were not trained on, by the supervisor's account"
    cut_short = {sample for sample in tally.begun if tally.begun[sample] > tally.ended[sample]}
    missed = [sample for sample in range(samples) if tally.ended[sample] < epochs and sample not in cut_short]
    if missed:
        yield f"samples {missed[:8]} were trained on fewer than {epochs} times, by the workers' own account"
    again = sum(tally.begun.values()) - samples * epochs
    if again > outcome.samples_again and not any(isinstance(fault, KillSupervisor) for fault in faults):
        yield f"{again} samples were trained on again, of which the supervisor counted {outcome.samples_again}"
    certain = not any(_makes_uncertain(fault) for fault in faults)
    if certain and (again or outcome.samples_again):
        yield f"{max(again, outcome.samples_again)} samples were trained on again, though nobody died and nothing was cut"


def _makes_uncertain(fault: object) -> bool:
    """Whether it may be unknown afterwards what was trained on."""
    return isinstance(fault, Fail | Restart | Dismiss | Pause | Partition | KillSupervisor) or (
        isinstance(fault, Loss) and SUPERVISOR in (fault.one, fault.other)
    )


def _nobody_wronged(found: Simulated) -> Iterator[str]:
    """No process has two ranks at once, and nobody is given up who was never out of the supervisor's sight for long."""
    outcome = found.outcome
    assert outcome is not None
    if sorted(outcome.workers) != list(range(len(outcome.workers))):
        yield f"ranks with gaps: {sorted(outcome.workers)}"
    places = Counter(row.pid - 1 for row in outcome.workers.values() if row.state != "gone")
    if places and max(places.values()) > 1:
        yield f"a process with several ranks at once: {places}"
    may_go = _out_of_sight(found)
    away = any(isinstance(fault, KillSupervisor) for fault in found.scenario.faults)
    elects = away or 2 * len(may_go) > found.scenario.workers  # most workers may have gone on without the supervisor
    for rank, row in outcome.workers.items():
        left_out = elects and row.reason == LEFT_OUT
        if row.state == "gone" and row.pid - 1 not in may_go and not left_out:
            yield f"worker {rank} was given up though it was there all the time: {row.reason}"


def _all_back(found: Simulated) -> Iterator[str]:
    """Who was given up for its silence alone is back, if the run went on for long enough after it."""
    given, outcome = found.scenario, found.outcome
    assert outcome is not None
    chosen = combine(given.strategy, given.topology or None, given.codec or None, given.finish or None, given.workers)
    if chosen.returns == "no" or any(isinstance(fault, Slow | Throttle | KillSupervisor) for fault in given.faults):
        return  # it cannot, or nobody knows how long anything takes
    ended = {fault.rank for fault in given.faults if isinstance(fault, Fail | Restart | Dismiss)}
    silences = {place: until_s for place, until_s in _healed(found).items() if place not in ended}
    seen = {row.pid - 1 for row in outcome.workers.values() if row.state != "gone"}
    for place, until_s in silences.items():
        if until_s + BACK_S < found.wall_s and place not in seen:
            yield f"the worker at {place} was heard again at {until_s:g} s, and is not back"


def _healed(found: Simulated) -> dict[int, float]:
    """When each worker was heard again, of those who were silent at a time that is known."""
    until: defaultdict[int, float] = defaultdict(float)
    for fault in found.scenario.faults:
        match fault:
            case Pause(rank, for_s=for_s):
                until[rank] = max(until[rank], 1e9 if fault.at_step is not None else fault.at_s + for_s)
            case Partition(until_s=until_s) | Loss(until_s=until_s):
                for place in range(found.scenario.workers):
                    until[place] = max(until[place], until_s or 1e9)
            case _:
                pass
    return dict(until)


def _out_of_sight(found: Simulated) -> set[int]:
    """The places of workers that died, left, or were silent for so long that they may be given up."""
    silent_s: defaultdict[int, float] = defaultdict(float)
    places = found.scenario.workers + sum(newcomers(fault) for fault in found.scenario.faults)
    for fault in found.scenario.faults:
        match fault:
            case Fail(rank) | Restart(rank) | Dismiss(rank):
                silent_s[rank] += 1e9
            case Pause(rank, for_s=for_s):
                silent_s[rank] += for_s
            case Partition(from_s=from_s, until_s=until_s):
                for place in range(places):
                    if fault.parts(place, SUPERVISOR):
                        silent_s[place] += (until_s or 1e9) - from_s
            case Loss(one, other, from_s=from_s, until_s=until_s) if SUPERVISOR in (one, other):
                for end in (one, other):
                    if end is not None and end >= 0:
                        silent_s[end] += (until_s or 1e9) - from_s
            case _:
                pass
    return {place for place, silence_s in silent_s.items() if silence_s > SHORT_S}
