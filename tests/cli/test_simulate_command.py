"""``taut simulate`` as a user types it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from taut.cli.main import main

JOB = str(Path(__file__).parents[1] / "simulator" / "tiny_job.py")

OWN_LOOP = """
import torch, taut
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with taut.join(model, optimizer) as worker:
    for _ in range(30):
        loss = model(torch.ones(4, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        worker.exchange(loss)
"""


def taut(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *words])
    return int(ended.value.code or 0)


def test_json_has_the_figures_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    code = taut("--json", "--step", "10ms", "--link", "1gbit,200us", "--straggler", "1x4", JOB, "--epochs", "1")
    printed = json.loads(capsys.readouterr().out)
    assert code == 0 and printed["simulated"] and printed["samples"] == 512
    assert printed["scenario"]["speeds"]["stragglers"] == {"1": 4.0}
    assert {"samples_per_s", "bytes_sent", "time_split", "validation", "consensus_distance"} <= set(printed)
    assert len(printed["workers"]) == 4


def test_a_trace_can_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    assert taut("--quiet", "--step", "10ms", "--trace", str(path), JOB, "--epochs", "1") == 0
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["name"] for event in events} >= {"compute", "merge"}
    assert taut("--replay", str(path)) == 0
    assert "to the byte" in capsys.readouterr().out
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:40], *lines[41:]]) + "\n")
    assert taut("--replay", str(path)) == 1
    assert "differs" in capsys.readouterr().err


def test_the_step_is_measured_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert taut("--steps", "3", JOB) == 0
    printed = capsys.readouterr()
    assert "--step" in printed.err and "virtual seconds" in printed.out


@pytest.mark.parametrize("module", [True, False])
def test_a_module_and_a_script_find_their_neighbours(
    module: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As ``python -m package.train`` and ``python package/train.py`` do."""
    package = tmp_path / "simulated_package"
    package.mkdir()
    (package / "neighbour_of_a_script.py").write_text("STEPS = 30\n")
    source = "simulated_package.neighbour_of_a_script" if module else "neighbour_of_a_script"
    script = f"import sys\nfrom {source} import STEPS\nassert sys.argv[1:] == ['--rate', '3']\n" + OWN_LOOP
    (package / "train.py").write_text(script.replace("range(30)", "range(STEPS)"))
    monkeypatch.chdir(tmp_path)
    paths = list(sys.path)
    words = ["-m", "simulated_package.train"] if module else [str(package / "train.py")]
    try:
        for step in ([], ["--step", "10ms"]):
            assert taut("--workers", "2", *step, *words, "--rate", "3") == 0, capsys.readouterr().err
        assert sys.path == paths
        if module:
            assert taut("-m", "simulated_package.trian") == 2
            assert "a module that can be found" in capsys.readouterr().err
    finally:
        for name in ("simulated_package", source):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("timing", [[], ["--timing-only"]])
def test_a_loop_that_does_not_count_samples_is_simulated(
    timing: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "own_loop.py"
    script.write_text(OWN_LOOP)
    assert taut("--workers", "2", *timing, str(script)) == 0
    printed = capsys.readouterr()
    assert "samples=N" in printed.err and "steps/s" in printed.out
    script.write_text(OWN_LOOP.replace("exchange(loss)", "exchange(loss, samples=4)"))
    assert taut("--workers", "2", *timing, str(script)) == 0
    printed = capsys.readouterr()
    assert "4 samples a step" in printed.err and re.search(r"virtual seconds, [\d,]+ samples/s", printed.out)


@pytest.mark.parametrize("timing", [[], ["--timing-only", "--parameters", "99"]])
def test_a_fault_after_the_end_is_said_to_have_never_happened(
    timing: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--step",
        "10ms",
        "--steps",
        "20",
        *timing,
        "--fail",
        "2@30s",
        "--pause",
        "1@50ms+20ms",
        "--join",
        "1@40s",
        JOB,
    ]
    assert taut(*words) == 0
    shown = capsys.readouterr().out
    assert "never happened: fail of worker 2 at 30 s" in shown and "never happened: join at 40 s" in shown
    assert "pause" not in shown
    assert taut("--json", *words) == 0
    never = json.loads(capsys.readouterr().out)["faults_never_happened"]
    assert [(each["kind"], each["at_s"]) for each in never] == [("fail", 30.0), ("join", 40.0)]


def test_timing_alone_needs_no_script(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--json", "--timing-only", "--workers", "16", "--strategy", "dpsgd", "--topology", "torus", "--steps", "5")
    assert taut(*words, "--link", "10gbit,50us", "resnet50") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["timing_only"] and len(printed["workers"]) == 16 and printed["wall_s"] > 5 * 0.25


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "SCRIPT or a preset"),
        (["digit"], "did you mean 'digits'"),
        (["resnet50"], "--timing-only"),
        (["--link", "1gbitt", JOB], "did you mean 'gbit'"),
        (["--straggler", "four", JOB], "--straggler four"),
        (["--fail", "9@1s", "--step", "1ms", JOB], "worker from 0 to 3"),
        (["--workers", "0", "--step", "1ms", JOB], "whole number from 1"),
        (["--strategy", "asinc", "--step", "1ms", JOB], "did you mean 'async'"),
        (["--strategy", "dpsgd", "--topology", "torus:3x5", "--step", "1ms", JOB], "torus"),
        (["--strategy", "sync:schedule=gloo", "--step", "1ms", JOB], "gloo"),
        (["--step", "-1ms", JOB], "-1ms"),
        (["--replay", "nowhere.json"], "nowhere.json"),
    ],
)
def test_mistakes_are_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert taut(*words) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and told in printed and "Traceback" not in printed


def test_learning_rates_and_a_global_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machines = ["-n", "3", "--strategy", "sync", "--step", "10ms", "--straggler", "2x4"]
    job = [str(Path(JOB).with_name("global_batch_job.py")), "--epochs", "1"]
    assert taut("--json", *machines, "--scale-lr", "linear", *job, "--batch-size", "40") == 0
    assert json.loads(capsys.readouterr().out)["scenario"]["scale_lr"] == "linear"
    assert taut("--quiet", *machines, *job, "--global-batch", "120") == 0
    assert taut("--quiet", *machines, "--scale-lr", "linear", *job, "--global-batch", "120") == 2
    assert taut(*machines, "--scale-lr", "cubic", *job) == 2
    assert "--scale-lr = 'cubic'" in capsys.readouterr().err


def test_a_script_that_raises_is_shown_with_its_own_lines_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    early, late = tmp_path / "early.py", tmp_path / "late.py"
    early.write_text('raise KeyError("early")\n')
    late.write_text(OWN_LOOP + "        if worker.steps == 3:\n            raise KeyError('late')\n")
    for script, options in ((early, ()), (early, ("--step", "10ms")), (late, ("--step", "10ms"))):
        assert taut("-n", "2", *options, str(script)) == 1
        told = capsys.readouterr().err
        assert "Traceback" in told and f'File "{script}"' in told and "KeyError" in told
        assert "runpy" not in told and "fibers.py" not in told


def test_clients_may_outnumber_simulated_workers(capsys: pytest.CaptureFixture[str]) -> None:
    job = str(Path(__file__).parents[1] / "simulator" / "script" / "clients_job.py")
    assert taut("-n", "2", "--step", "10ms", "--clients", "8", "--json", job, "--clients", "8") == 0
    assert json.loads(capsys.readouterr().out)["scenario"]["strategy"] == "fedavg:clients=8"
    assert taut("-n", "2", "--step", "10ms", "--clients", "8", "--strategy", "sync", job) == 2


def test_a_run_that_scores_end_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    job = str(Path(__file__).parents[1] / "simulator" / "script" / "evaluated_job.py")
    words = ("-n", "2", "--step", "10ms", "--validate-every", "20steps", "--stop-early", "2")
    assert taut(*words, job) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "evaluations: 5, the last one 4 after 1." in printed
    assert "stopped early: no better score in 2 evaluations since 4 after 60 steps" in printed
    assert taut("-n", "2", "--step", "10ms", "--stop-early", "2", job) == 2
    assert "expected how often to evaluate" in capsys.readouterr().err
