"""Evaluations in the course of a simulated run: the same on each repetition, and all workers stop early together."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.errors import Misuse
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script
from taut.simulator.timing.simulation import simulate_timing
from taut.simulator.trace import Trace

JOB = str(Path(__file__).parent / "evaluated_job.py")


def scenario(strategy: str = "async", every: str = "20steps", stop: str = "2", *args: str) -> Scenario:
    links, speeds = Links(Link(1e9, 1e-4)), Speeds(step_s=0.1)
    chosen = {"validate_every": every, "stop_early": stop, "strategy": strategy}
    return Scenario(script=JOB, workers=3, speeds=speeds, links=links, args=args, **chosen)  # type: ignore[arg-type]


def simulated(given: Scenario, trace: Trace | None = None) -> Simulated:
    return simulate_script(given, trace=trace, limit_s=600.0)


@pytest.mark.parametrize("every", ["20steps", "2s"])
@pytest.mark.parametrize("strategy", ["sync", "async", "dpsgd", "averaging:every=2"])
def test_all_workers_stop_early_together(strategy: str, every: str) -> None:
    found = simulated(scenario(strategy, every))
    assert found.error == "" and not found.gone
    # the evaluation after 60 steps is the best one, that after 100 ends the run; of 400 steps
    assert all(95 <= each.steps <= 140 for each in found.workers.values()), found.workers
    assert [score for _, score in found.evaluations[:5]] == [1.0, 2.0, 4.0, 4.0, 4.0]
    assert [time_s for time_s, _ in found.evaluations[:5]] == pytest.approx([2.0, 4.0, 6.0, 8.0, 10.0], abs=0.8)
    assert found.ended_early == "stopped early: no better score in 2 evaluations since 4 after 60 steps"


def test_a_simulation_with_evaluations_repeats_to_the_byte(tmp_path: Path) -> None:
    for name in ("one", "two"):
        given = scenario()
        trace = Trace(given.to_record())
        simulated(given, trace)
        trace.write(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert Scenario.from_record(scenario().to_record()) == scenario()


def test_without_stopping_early_the_run_goes_on() -> None:
    found = simulated(scenario(stop=""))
    assert found.error == "" and sum(each.samples for each in found.workers.values()) == 12_000
    assert len(found.evaluations) >= 15


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (scenario(every=""), "--stop-early 2 without --validate-every"),
        (scenario(every="often"), "often"),
        (scenario(stop="0"), "0"),
    ],
)
def test_misuse_is_named(given: Scenario, words: str) -> None:
    with pytest.raises(Misuse, match=words):
        simulated(given)


def test_a_script_without_a_validation_function_is_refused() -> None:
    found = simulated(scenario("async", "20steps", "2", "--without"))
    assert "no validation function" in found.error and not found.evaluations


def test_nothing_is_evaluated_where_nothing_is_trained() -> None:
    with pytest.raises(Misuse, match="--validate-every 20steps with --timing-only"):
        simulate_timing(scenario())
