"""Comparisons in virtual time: what is kept of a simulation, which cells a scenario fits, and one that is simulated."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from taut.cli.commands import compare_scenario
from taut.cli.commands.compare import compare
from taut.cli.machines import Machines
from taut.cli.options import PASS_ON
from taut.comparison.runs.job import Job
from taut.comparison.runs.matrix import expand
from taut.comparison.runs.simulated_run import fitting, record_of, scenario_of
from taut.core.messages import Statistics
from taut.errors import Misuse
from taut.simulator.result import HistoryPoint, Simulated
from taut.supervisor.view import ValidationScores

TRAIN = """
    import torch
    import taut

    torch.manual_seed(0)
    model = torch.nn.Linear(8, 2)
    x = torch.randn(64, 8)
    y = (x.sum(dim=1) > 0).long()
    accuracy = lambda model: (model(x).argmax(1) == y).float().mean().item()
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1), validate=accuracy) as worker:
        for inputs, targets in worker.batches((x, y), batch_size=8, epochs=2):
            worker.step(torch.nn.functional.cross_entropy(model(inputs), targets))
"""


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    return script


def test_the_scenario_is_the_jobs_with_the_cells_choices(train: Path) -> None:
    machines = Machines(link=["100mbit,1ms"], step="5ms", straggler=["1x4"])
    job = Job(train, ("{seed}",), scenario=machines.scenario(script=str(train)))
    cell = expand(["ssp:2"], ["dense"], workers=[8], seeds=[3]).cells[0]
    made = scenario_of(job, cell)
    assert (made.strategy, made.codec, made.topology, made.workers, made.seed) == ("ssp:2", "dense", "", 8, 3)
    assert made.args == ("3",)
    assert job.scenario is not None and made.links == job.scenario.links and made.speeds.stragglers == {1: 4.0}


def test_cells_that_the_scenario_does_not_fit_are_left_out(train: Path) -> None:
    job = Job(train, scenario=Machines(straggler=["5x4"]).scenario(script=str(train)))
    made = fitting(job, expand(["sync"], workers=[2, 8], seeds=[0, 1]))
    assert [cell.workers for cell in made.cells] == [8, 8]
    assert [one.what for one in made.skipped] == ["sync, dense, complete, 2 workers"]
    with pytest.raises(Misuse, match="at least one number of workers"):
        fitting(job, expand(["sync"], workers=[2]))


def test_what_is_kept_of_a_simulation(train: Path) -> None:
    job = Job(train, scenario=Machines().scenario(script=str(train)))
    cell = expand(["async"], workers=[2]).cells[0]
    workers = {rank: Statistics(steps=4, samples=32, bytes_sent=100, bytes_dense=400, wall_s=2.0) for rank in (0, 1)}
    points = tuple(HistoryPoint(float(at), rank, at, 16 * at, 50 * at, 1.0 / at, 0.5) for at in (1, 2) for rank in (0, 1))
    scores = ((1.0, 0.5), (1.5, float("nan")), (2.0, 0.75))
    simulated = Simulated(
        scenario_of(job, cell),
        2.0,
        workers,
        history=points,
        scores=scores,
        validation=ValidationScores({}, 0.75),
        consensus=0.1,
    )
    kept = record_of(job, cell, simulated)
    assert kept.simulated and kept.finished
    assert (kept.samples, kept.samples_per_s, kept.bytes_sent, kept.compression) == (64, 32.0, 200, 4.0)
    assert (kept.score, kept.scores) == (0.75, ((1.0, 0.5), (2.0, 0.75)))
    assert kept.history[-1].samples == 64
    assert kept.history[-1].loss == 0.5
    assert kept.loss is not None and 0.5 < kept.loss < 1.0  # of the last tenth of the time
    assert kept.staleness_samples == (0.5, 0.5, 0.5, 0.5)
    assert kept.command.startswith("taut simulate --workers 2 --strategy async")


def test_a_step_is_measured_once(train: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured again it would be another figure, and nothing that was made before would be found."""
    found = iter([0.0123456789, 0.5])

    def sized(scenario: Any, *_: object) -> Any:
        from dataclasses import replace

        return replace(scenario, parameters=18, batch=8, speeds=replace(scenario.speeds, step_s=next(found)))

    monkeypatch.setattr(compare_scenario, "sized", sized)
    cell = expand(["async"], workers=[2]).cells[0]
    jobs = [
        compare_scenario.simulated_job(Job(train), Machines(), None, None, False, tmp_path / "out", silent=True)
        for _ in range(2)
    ]
    assert jobs[0] == jobs[1]
    assert jobs[0].command(cell).endswith(f"--step 12346us {train}")
    assert jobs[0].scenario is not None and jobs[0].scenario.speeds.step_s == 0.012346


def test_a_simulated_comparison(train: Path) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("compare", context_settings=PASS_ON)(compare)
    machines = ["--simulate", "--link", "100mbit,1ms", "--step", "5ms"]
    flags = ["--strategies", "sync,async", "-n", "2", "--seeds", "1", *machines]
    done = CliRunner().invoke(app, [*flags, "--json", "--out", "out", str(train)])
    assert done.exit_code == 0, done.exception
    said = json.loads(done.stdout)
    assert said["simulated"]
    for row in said["runs"]:
        assert row["kind"] == "simulated" and row["state"] == "finished"
        assert row["samples"] == 128
        assert row["wall_s"] > 8 * 0.005 * 0.99  # each makes 8 steps of 5 ms
        assert row["score"] is not None
