"""Processors that round differently: the last phase begins again now and then, and the mean is taken at the end."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from scripted import Scripted, digest, hello

from taut.core.drift import DRIFT
from taut.core.messages import Drain, NextPhase, PhaseDone, Platform, Ready
from taut.supervisor.prepare import plan_of
from taut.supervisor.run.workers import platform_differs
from taut.supervisor.storage.snapshot import keep, recall
from taut.worker.model.platform import script_of

PLAIN, WIDE = Platform(rounding="cpu DEFAULT"), Platform(rounding="cpu AVX2")


def run_with(*platforms: Platform, resync: int = 100, phases: int = 1) -> Scripted:
    """Return a run in which one worker with each of these platforms trains."""
    run = Scripted(workers=len(platforms), phases=phases, resync=resync)
    for rank, platform in enumerate(platforms):
        run.say(rank, msgspec.structs.replace(hello(100 + rank), platform=platform))
    for rank in range(len(platforms)):
        run.say(rank, Ready())
    return run


def reach(run: Scripted, phase: int, *ranks: int) -> None:
    for rank in ranks:
        run.say(rank, PhaseDone(phase))


def announced(run: Scripted, rank: int = 0) -> list[int]:
    return [told.phase for told in run.heard(rank, NextPhase)]


def test_the_last_phase_begins_again_for_as_long_as_the_run_lasts() -> None:
    run = run_with(PLAIN, WIDE)
    for phase in (1, 2, 3):
        reach(run, phase, 0, 1)
    assert announced(run) == announced(run, 1) == [1, 2, 3]
    told = [event.text for event in run.events if event.kind == "resync"]
    assert told == ["processors round differently (cpu AVX2, cpu DEFAULT): mean taken every 100 steps"], "once"


@pytest.mark.parametrize("run", [run_with(WIDE, WIDE), run_with(PLAIN, WIDE, resync=0)], ids=["alike", "switched off"])
def test_it_does_not_where_processors_are_alike_or_it_is_switched_off(run: Scripted) -> None:
    reach(run, 1, 0, 1)
    assert announced(run) == []
    run.done(0, 1)
    assert not run.heard(0, Drain)[0].averages


def test_phases_of_the_schedule_come_first_and_as_before() -> None:
    run = run_with(WIDE, WIDE, phases=2)
    reach(run, 1, 0, 1)
    reach(run, 2, 0, 1)
    assert announced(run) == [1]


def test_one_that_joins_later_with_another_processor_begins_it() -> None:
    run = run_with(WIDE, WIDE)
    reach(run, 1, 0, 1)
    run.say(2, msgspec.structs.replace(hello(102), platform=PLAIN))
    assert announced(run) == [], "it has no state yet"
    run.say(2, Ready())
    reach(run, 1, 2)
    assert announced(run) == announced(run, 2) == [1]


def test_after_an_election_no_phase_is_announced() -> None:
    run = run_with(PLAIN, WIDE)
    run.cluster.members.view = 1
    reach(run, 1, 0, 1)
    assert announced(run) == []
    run.done(0, 1)
    assert run.heard(0, Drain)[0].averages, "the mean at the end is enough"


def test_all_are_told_to_average_at_the_end_also_by_a_supervisor_that_came_back() -> None:
    run = run_with(PLAIN, WIDE)
    run.done(0, 1)
    assert [told.averages for told in run.heard(0, Drain) + run.heard(1, Drain)] == [True, True]
    back = recall(run.cluster.plan, keep(run.cluster, run.now), 1, run.now)
    assert back.ending.averages
    assert [worker.hello.platform for worker in back.members.workers.values()] == [PLAIN, WIDE]


@pytest.mark.parametrize("distance", [2e-8, 10 * DRIFT])
def test_a_distance_that_rounding_does_not_explain_is_an_error(distance: float) -> None:
    run = run_with(PLAIN, WIDE)
    run.done(0, 1)
    for rank in (0, 1):
        run.say(rank, msgspec.structs.replace(digest(), distance=distance), b"\0" * 8)
    run.take(run.cluster.saved("runs/x/model.safetensors", "", run.now))
    outcome = run.outcome
    assert (outcome.identical, outcome.exit_code) == (True, int(distance > DRIFT))
    assert ("rounding does not explain" in outcome.error) == (distance > DRIFT)
    assert any("the mean was taken" in event.text for event in run.events)


def test_platforms_are_compared_with_the_first_workers_and_recorded() -> None:
    first = Platform("0.1.0", "3.11.7", "2.13.0", "Linux-x86_64", "")
    other = Platform("0.1.0", "3.12.1", "2.12.0", "Darwin-arm64", "")
    run = run_with(first, first, other)
    (told,) = [event.text for event in run.events if event.kind == "platform"]
    assert told == (
        "worker 2 has Python 3.12.1 (3.11.7), torch 2.12.0 (2.13.0), system Darwin-arm64 (Linux-x86_64)"
        " (in brackets: worker 0)"
    )
    assert not platform_differs(replace_python(first, "3.11.9"), first), (
        "the last number of Python's version is no matter"
    )


def test_a_script_that_differs_is_named_before_anything_trains(tmp_path: Path) -> None:
    texts = {"train.py": "a", "other.py": "b", "copy.py": "a", "odd\n.py": "a"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    told = {name: Platform(script=script_of(str(tmp_path / name))) for name in (*texts, "nowhere.py")}
    run = run_with(*told.values())
    (said,) = [event.text for event in run.events if event.kind == "platform"]
    first, other = told["train.py"].script, told["other.py"].script
    assert said == f"worker 1 has script {other} ({first}) (in brackets: worker 0)"


def replace_python(platform: Platform, version: str) -> Platform:
    return msgspec.structs.replace(platform, python=version)


def test_a_plan_says_how_often() -> None:
    plans = [
        plan_of({"strategy": strategy}, "r", 2, 0) for strategy in ("sync", "sync:resync=7", "sync:resync=0", "async")
    ]
    assert [plan.resync for plan in plans] == [200, 7, 0, 0]
