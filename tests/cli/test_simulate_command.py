"""``taut simulate`` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taut.cli.main import main

JOB = str(Path(__file__).parents[1] / "simulator" / "tiny_job.py")


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
