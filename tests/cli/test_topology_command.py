"""``taut topology``: what it prints, draws and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from taut.cli.commands import topology as command
from taut.errors import Misuse

Call = Callable[..., str]
LONG = "edges:" + ",".join(f"{rank}-{rank + 1}" for rank in range(39))


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    monkeypatch.chdir(tmp_path)
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command.topology)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, list(arguments))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_it_prints_neighbours_and_figures_in_80_columns(call: Call) -> None:
    said = call("torus", "--workers", "12")
    assert all(len(line) <= 80 for line in said.splitlines())
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert "torus, 12 workers, 24 edges" in lines
    assert "diameter 3" in lines
    assert "spectral gap 0.4 with metropolis weights" in lines
    assert "messages 48 per step of 4.0 MB each" in lines
    assert "traffic 192.0 MB per step; at most 16.0 MB sent by one" in lines
    assert "0 1, 3, 4, 8" in lines
    assert "11 3, 7, 8, 10" in lines


@pytest.mark.parametrize("spec", ["one-peer", "exponential", "matcha:base=complete", "complete", "random:degree=5", LONG])
def test_no_line_is_too_long(call: Call, spec: str) -> None:
    assert max(len(line) for line in call(spec, "-n", "40").splitlines()) <= 80


def test_json_is_one_object(call: Call) -> None:
    told = json.loads(call("ring", "-n", "5", "--json", "--parameters", "10", "--mixing", "uniform"))
    assert told["topology"] == "ring" and told["workers"] == 5 and told["edges"] == 5
    assert told["neighbours"]["0"] == [1, 4]
    assert told["diameter"] == 2
    assert told["spectral_gap"] == pytest.approx(1 - told["disagreement_left"])
    assert (told["messages_per_step"], told["message_bytes"], told["bytes_per_step"]) == (10, 40, 400)
    assert told["rounds"] is None
    assert json.loads(call("ring", "-n", "5", "--json", "--codec-bytes", "7"))["bytes_per_step"] == 70


def test_time_varying_shapes_are_shown_round_by_round(call: Call) -> None:
    told = json.loads(call("one-peer", "-n", "8", "--json"))
    assert len(told["rounds"]) == 3
    assert told["disagreement_left"] == pytest.approx(0.0, abs=1e-12)
    assert told["messages_per_step"] == 8
    assert told["sends_to"]["0"] == [1, 2, 4]
    assert len(json.loads(call("matcha", "-n", "8", "--json", "--rounds", "40"))["rounds"]) == 40
    assert "1 | 2 | 4" in call("one-peer", "-n", "8")


def test_files_are_read(call: Call) -> None:
    Path("square.txt").write_text("0 1\n1 2\n2 3\n3 0\n")
    told = json.loads(call("file:square.txt", "-n", "4", "--json"))
    assert told["topology"] == "edges:0-1,0-3,1-2,2-3"
    assert told["diameter"] == 2


def test_a_large_one_is_quick_and_says_what_it_leaves_out(call: Call) -> None:
    said = call("torus:100x100", "-n", "10000")
    assert "not worked out for more than 1000 workers" in said
    assert "... and 9968 more: --json has them all" in said


@pytest.mark.parametrize("spec", ["torus", "tree", "one-peer", "edges:0-1,1-2,2-3,3-4,4-0", "hypercube"])
def test_it_draws(call: Call, spec: str) -> None:
    workers = {"edges": "5", "hyper": "8"}.get(spec[:5], "6")
    call(spec, "-n", workers, "--draw", "a.svg")
    first = Path("a.svg").read_bytes()
    assert first.startswith(b"<?xml") and first.count(b"<path") > int(workers)
    call(spec, "-n", workers, "--draw", "a.svg")
    assert Path("a.svg").read_bytes() == first


def test_it_draws_pixels(call: Call) -> None:
    call("ring", "-n", "4", "--draw", "a.PNG")
    assert Path("a.PNG").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["torus:3x5", "-n", "16"], "3 x 5 = 15 workers; for 16 workers: 4 x 4, 2 x 8"),
        (["tours", "-n", "4"], "did you mean 'torus'"),
        (["ring", "-n", "0"], "--workers 0: expected a whole number from 1"),
        (["ring", "-n", "100000"], "from 1 to 10000"),
        (["ring", "-n", "4", "--parameters", "0"], "--parameters 0"),
        (["ring", "-n", "4", "--rounds", "3"], "--rounds 3 for ring: expected a shape that varies"),
        (["line", "-n", "4", "--mixing", "uniform"], "use metropolis"),
        (["exponential", "-n", "4", "--mixing", "metropolis"], "expected an undirected one"),
        (["ring", "-n", "4", "--draw", "a.jpg"], "ends in .png or .svg"),
        (["complete", "-n", "200", "--draw", "a.png"], "19900 edges: expected at most 300 workers"),
        (["file:none.txt", "-n", "4"], "file:none.txt .No such file"),
        (["file:.", "-n", "4"], "file:. .Is a directory"),
    ],
)
def test_misuse_is_said(call: Call, arguments: list[str], says: str) -> None:
    with pytest.raises(Misuse, match=says) as told:
        call(*arguments)
    assert told.value.exit_code == 2
    assert not list(Path().iterdir())
