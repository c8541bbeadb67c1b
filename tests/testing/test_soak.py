"""The soak: every strategy survives random faults, and its laws can be broken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from taut.simulator.faults import newcomers
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.strategies import REGISTRY
from taut.supervisor.view import Outcome
from taut.testing.fault_plan import FaultPlan
from taut.testing.faults.random_plans import random_plan
from taut.testing.soak.cases import PHASES, STRATEGIES, TURNS, Case, case_of, check_case, check_seed
from taut.testing.soak.laws import Tally, broken_laws
from taut.testing.soak.soak import main, told

PLANS = 200
PHASED = TURNS.index(PHASES)
# Of them in `make test`: each strategy has its turn once, and so have all of those that share one.
QUICK = [*range(len(TURNS)), *range(len(TURNS) + PHASED, len(PHASES) * len(TURNS), len(TURNS))]
LONG = sorted({*range(PLANS)} - {*QUICK})
AT_ONCE = 5
VERBS = {
    "kill", "restart", "pause", "join", "leave", "kill_supervisor", "slow", "partition", "cut", "one_way", "drop",
    "throttle", "duplicate", "reorder",
}  # fmt: skip


def groups(seeds: list[int]) -> list[list[int]]:
    return [seeds[first : first + AT_ONCE] for first in range(0, len(seeds), AT_ONCE)]


@pytest.mark.parametrize(
    "seeds", [*groups(QUICK), *(pytest.param(each, marks=pytest.mark.long) for each in groups(LONG))]
)
def test_random_faults_break_no_law(seeds: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a worker that loses its supervisor for good saves its model where it is
    failed = [one for one in map(check_seed, seeds) if one.broken]
    assert not failed, "\n".join(told(one) for one in failed)


def verbs_of(plan: FaultPlan) -> set[str]:
    return {call.partition("(")[0] for call in str(plan).split(").")[1:]} - {"at", "at_step", "between"}


def test_every_strategy_topology_codec_pace_and_kind_of_fault_has_its_turn() -> None:
    """In the plans of `make test`: they are fewer than those of `make test-all`, and of all its kinds."""
    names = {strategy.partition(":")[0] for strategy in STRATEGIES}
    assert set(REGISTRY) <= names
    quick, all_of_them = ([case_of(seed) for seed in seeds] for seeds in (QUICK, range(PLANS)))
    assert {case.strategy for case in quick} == set(STRATEGIES)
    for what in ("topology", "codec", "step_s"):
        assert {getattr(case, what) for case in quick} == {getattr(case, what) for case in all_of_them}
    assert set[str]().union(*(verbs_of(case.plan) for case in quick)) == VERBS
    assert 5 * len(TURNS) <= PLANS


def test_somebody_comes_to_every_run_in_phases() -> None:
    phased = [case_of(seed) for seed in range(PLANS) if case_of(seed).strategy in PHASES]
    assert len(phased) >= len(PHASES) and all(any(map(newcomers, case.plan.faults)) for case in phased)


def test_plans_are_of_all_kinds_and_spare_two() -> None:
    verbs = set()
    for seed in range(300):
        plan = random_plan(seed, workers=5, duration_s=2.0)
        plan.check(5)
        assert FaultPlan.parse(str(plan)) == plan
        verbs |= verbs_of(plan)
        dead = {fault.rank for fault in plan.faults if type(fault).__name__ in ("Fail", "Restart", "Departure")}
        assert len(dead) <= 3
    assert verbs == VERBS


def found(**outcome: object) -> Simulated:
    given: dict[str, object] = {"state": "finished", "exit_code": 0, "identical": True, "exact": True, "digest": "d"}
    given |= {"model": Path("model"), **outcome}
    return Simulated(Scenario(strategy="async"), 1.0, {}, outcome=Outcome(**given))  # type: ignore[arg-type]


def tally(**missing: int) -> Tally:
    made = Tally()
    for sample in range(8):
        made.begun[sample] = made.ended[sample] = 2 - missing.get(f"s{sample}", 0)
    return made


@pytest.mark.parametrize(
    ("what", "outcome", "missing"),
    [
        ("exit code 1", {"exit_code": 1}, {}),
        ("replicas differ", {"identical": False}, {}),
        ("8 samples were not", {"samples_undone": 8}, {}),
        ("-8 samples were not", {"samples_undone": -8}, {}),
        ("samples \\[3\\] were trained", {}, {"s3": 1}),
        ("1 samples were trained on again", {}, {"s3": -1}),
    ],
)
def test_a_broken_law_is_seen(what: str, outcome: dict[str, object], missing: dict[str, int]) -> None:
    from taut.core.messages import Statistics
    from taut.supervisor.view import WorkerRow

    row = WorkerRow(0, "", 1, "finished", Statistics(), 0.0, "")
    assert broken_laws(found(workers={0: row}), tally(), 8, 2) == []
    broken = broken_laws(found(workers={0: row}, **outcome), tally(**missing), 8, 2)
    assert len(broken) >= 1
    import re

    assert any(re.search(what, law) for law in broken), broken


def test_two_ranks_at_once_and_one_who_is_not_back_are_seen() -> None:
    from taut.core.messages import Statistics
    from taut.simulator.faults import Pause
    from taut.supervisor.view import WorkerRow

    def rows(*states: str) -> dict[int, WorkerRow]:
        return {rank: WorkerRow(rank, "", 1, state, Statistics(), 0.0, "silent") for rank, state in enumerate(states)}  # type: ignore[arg-type]

    cut = replace(Scenario(strategy="async", workers=1), faults=(Pause(0, at_s=1.0, for_s=20.0),))
    for states, wall_s, law in (
        (("gone", "finished"), 50.0, ""),
        (("finished", "finished"), 50.0, "several ranks at once"),
        (("gone",), 50.0, "heard again at 21 s, and is not back"),
        (("gone",), 25.0, ""),
    ):
        broken = broken_laws(replace(found(workers=rows(*states)), scenario=cut, wall_s=wall_s), tally(), 8, 2)
        assert [law in one for one in broken] == [True] * bool(law), (states, broken)


def test_a_run_that_cannot_end_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("taut.testing.soak.cases.LIMIT_S", 10.0)
    apart = Case(0, "dpsgd", "", "", 4, FaultPlan().cut(0, 1).at(0.5))
    (broken,) = check_case(apart).broken
    assert "not over after 10 s of virtual time" in broken and "[0, 1, 2, 3]" in broken


def test_a_failing_seed_is_replayed_by_one_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--seed", "6", "--trace", "soak-6.json"]) == 0
    assert "no law was broken" in capsys.readouterr().err
    first = Path("soak-6.json").read_bytes()
    assert main(["--seed", "6", "--trace", "again.json"]) == 0
    assert Path("again.json").read_bytes() == first, "the same plan, to the byte"
    broken = replace(check_seed(6), broken=("a law",))
    assert "python -m taut.testing.soak.soak --seed 6 --trace soak-6.json" in told(broken)


def test_misuse_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--plans", "0"])
    assert "from 1 up" in capsys.readouterr().err
    assert main(["--seed", "1", "--trace", "/nowhere/at/all.json"]) == 2
    assert "a folder that exists" in capsys.readouterr().err
