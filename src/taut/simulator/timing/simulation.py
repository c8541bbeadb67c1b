"""Simulate sizes and durations alone: the strategy, the topology and the collectives are those of a real run, the vectors
are small stand-ins, and nobody trains. For thousands of workers, and for questions that are about time.

What is simulated: steps (``speeds``), messages (``links``), what exchanging costs a worker's thread (``costs``), faults.
What is not: the supervisor's messages (a death is known ``detect_s`` later, or after an election), retransmission by
channels (the network's model has TCP's effect), and above 256 workers the end of the run, in which everybody takes leave
of everybody.
Methods that look at the values (``dynamic`` talks when weights stray) see weights that stand still.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from taut.collectives.ring import dense_ring_nbytes
from taut.errors import Misuse
from taut.simulator.result import Simulated
from taut.simulator.timing.coder import coder_for
from taut.simulator.timing.methods import MethodTiming
from taut.simulator.timing.streams import StreamTiming
from taut.simulator.timing.worker import Setting
from taut.simulator.timing.world import TimingWorld
from taut.strategies.compatibility import Combination, combine

if TYPE_CHECKING:
    from taut.simulator.scenario import Scenario
    from taut.simulator.trace import Trace

TOGETHER_WORKERS = 8  # beyond, all-reduces are executed for all positions at once
STREAM_WORKERS = 200  # everybody is wired to everybody there
DETECT_S = 2.0


def simulate_timing(
    scenario: Scenario,
    *,
    trace: Trace | None = None,
    progress: Callable[[float], None] | None = None,
    detect_s: float = DETECT_S,
    together: bool | None = None,
    noise: bool = False,
) -> Simulated:
    """Run ``scenario`` in virtual time, without a script. ``progress`` is told the share that is done. ``together``:
    whether all-reduces are executed for all positions at once (None: for more than 8 workers). ``noise``: steps move the
    stand-ins at random, and ``consensus`` of the result is how far they stray, in such steps.

    >>> from taut.simulator.models.costs import Costs
    >>> from taut.simulator.scenario import Scenario
    >>> free = Costs(message_s=0.0, send_s_per_byte=0.0, receive_s_per_byte=0.0, copy_s_per_byte=0.0)
    >>> simulate_timing(Scenario(workers=4, strategy="sync", steps=10, costs=free)).wall_s
    0.1
    """
    began_s = time.perf_counter()
    if scenario.workers < 1 or (scenario.steps is not None and scenario.steps < 0):
        raise Misuse(f"{scenario.workers} workers, {scenario.steps} steps", "at least one worker, and no negative number")
    if scenario.parameters < 1:
        raise Misuse(f"a model of {scenario.parameters} parameters", "at least 1")
    chosen = combine(
        scenario.strategy, scenario.topology or None, scenario.codec or None, scenario.finish or None, scenario.workers
    )
    if scenario.validate_every:
        given = f"--validate-every {scenario.validate_every} with --timing-only"
        raise Misuse(given, "workers that train", "leave one of the two out")
    if chosen.phases > 1:
        raise Misuse(f"strategy {scenario.strategy!r}", "a single phase, where only time is simulated", "give it alone")
    if chosen.strategy.settings.get("clients"):
        expected = "workers that are one client each, where only time is simulated"
        raise Misuse(f"strategy {scenario.strategy!r}", expected, "leave clients out; or simulate a script")
    setting = Setting(scenario, chosen, detect_s, trace, progress, noise)
    world: TimingWorld[Any]
    if chosen.strategy.is_method:
        _check_gathering(scenario, chosen)
        world = MethodTiming(setting, scenario.workers > TOGETHER_WORKERS if together is None else together)
    else:
        _check_streams(scenario, chosen.strategy.name)
        world = StreamTiming(setting)
    world.run()
    return _result(world, time.perf_counter() - began_s)


def _check_streams(scenario: Scenario, name: str) -> None:
    if scenario.workers > STREAM_WORKERS and name != "independent":
        links = scenario.workers * (scenario.workers - 1)
        raise Misuse(
            f"{name} of {scenario.workers} workers, everybody wired to everybody: {links:,} links",
            f"at most {STREAM_WORKERS} workers",
            "take --strategy async --topology tree, which relays updates",
        )


def _check_gathering(scenario: Scenario, chosen: Combination) -> None:
    method, workers = chosen.strategy.method(), scenario.workers
    many = workers > STREAM_WORKERS and bool(method.summed_numbers)
    if many and coder_for(method, chosen.codec, workers) is not None:
        given = f"{method.name} of {workers} workers with codec {chosen.codec!r}: everybody sends to everybody"
        raise Misuse(given, f"at most {STREAM_WORKERS} workers", "leave the codec out: a ring scales")


def _result(world: TimingWorld[Any], real_s: float) -> Simulated:
    scenario = world.scenario
    workers = {}
    for rank, worker in sorted(world.workers.items()):
        figures = world.figures(worker) if worker.driver is not None else {}
        workers[rank] = worker.account.statistics(
            steps=worker.steps,
            samples=worker.steps * scenario.batch,
            dense_nbytes=dense_ring_nbytes(max(1, len(world.members)), scenario.parameters) * worker.steps,
            staleness=figures.get("staleness", 1.0) if worker.account.exchanged else 0.0,
            density=world.density,
            counted=" ".join(f"{name}={value:g}" for name, value in figures.items()),
        )
    return Simulated(
        scenario=scenario,
        wall_s=world.wall_ns * 1e-9,
        workers=workers,
        gone=dict(world.gone),
        history=tuple(world.history.points),
        consensus=0.0 if world.noise is None else world.noise.distance,
        counted={"events": next(world.events), "real_s": real_s, **world.history.middle()},
        missed=world.faults.missed(),
        error="" if world.members and any(each.alive for each in world.workers.values()) else "no worker is left",
    )
