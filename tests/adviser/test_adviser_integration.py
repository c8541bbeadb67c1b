"""``taut probe`` and ``taut advise`` through the command line: real workers, real links, one short script."""

from __future__ import annotations

import json
import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest
import typer
from forked_zygotes import taut_command
from probes import probe as made_up
from typer.testing import CliRunner

from taut.adviser.record import read_probe, write_probe
from taut.cli.commands import advise, probe
from taut.cli.options import PASS_ON
from taut.errors import Misuse, TautError

PATIENCE_S = 60

TRAIN = """
    import sys
    import torch
    import taut

    torch.manual_seed(0)
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(256, 8)
    y = (x.sum(dim=1) > 0).long()
    with taut.join(model, optimizer) as worker:
        for inputs, targets in worker.batches((x, y), batch_size=8, epochs=int(sys.argv[1])):
            worker.step(torch.nn.functional.cross_entropy(model(inputs), targets))
"""
MAIN = """
    import sys
    import typer
    from taut.cli.commands import advise, probe
    from taut.cli.options import PASS_ON
    from taut.errors import TautError

    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("probe", context_settings=PASS_ON)(probe.probe)
    app.command("advise", context_settings=PASS_ON)(advise.advise)
    try:
        app()
    except TautError as error:
        sys.stderr.write(f"error: {error}")
        sys.exit(error.exit_code)
"""


@pytest.fixture
def train(tmp_path: Path) -> Path:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    return script


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TAUT_")} | {"OMP_NUM_THREADS": "1"}


def command(*words: object) -> list[str]:
    return [*taut_command(textwrap.dedent(MAIN)), *map(str, words)]


def taut(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    words = tuple(command(*words))
    given = {"cwd": folder, "env": environment(), "timeout": PATIENCE_S}
    return subprocess.run(words, check=False, capture_output=True, text=True, **given)  # type: ignore[call-overload]


def test_a_probe_of_two_workers_here(tmp_path: Path, train: Path) -> None:
    done = taut(tmp_path, "probe", "--workers", 2, "--steps", 10, "--out", "found.json", train, 1000)
    assert done.returncode == 0, done.stderr
    found = read_probe(tmp_path / "found.json")
    assert found.parameters == 18 and found.local and found.args == ["1000"] and not found.gone
    assert [worker.rank for worker in found.workers] == [0, 1]
    for worker in found.workers:
        assert worker.timed >= 10 and worker.batch == 8 and 1e-5 < worker.step_s < 1.0
        assert set(worker.codecs) == {"tether", "threshold", "dense"}
        dense = (
            worker.codecs["dense"].bits_per_element * 18 / 8
        )  # 100 bytes, after every step or every second, fourth ...
        assert any(dense == pytest.approx(100 / fragments, rel=0.2) for fragments in (1, 2, 4, 8)), dense
    (link,) = found.links
    assert (link.one, link.other) == (0, 1)
    assert 1e-5 < link.round_trip_s < 0.1 and link.bytes_per_s > 1e6
    assert "0-1" in done.stdout and "found.json" in done.stdout


def test_a_probe_between_machines(tmp_path: Path, train: Path) -> None:
    """The workers join as they would from elsewhere. There is data for a second or two: with less, the first to come may
    have trained on all of it before the other takes its first step."""
    there = command("probe", "--listen", "--workers", 2, "--bind", "127.0.0.1", "--steps", 10, "--json")
    supervisor = subprocess.Popen(
        there, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    workers = []
    try:
        assert supervisor.stderr is not None
        said = ""
        while not (match := re.search(r"--join (\S+) --token-file (\S+)", said)):
            line = supervisor.stderr.readline()
            assert line, said
            said += line
        join = [*taut_command(), "worker", "--join", match[1], "--token-file", match[2], str(train)]
        workers = [subprocess.Popen([*join, "100"], cwd=tmp_path, env=environment()) for _ in range(2)]
        out, err = supervisor.communicate(timeout=PATIENCE_S)
        assert supervisor.returncode == 0, err
        assert [worker.wait(PATIENCE_S) for worker in workers] == [0, 0]
    finally:
        for process in (supervisor, *workers):
            process.kill()
            process.wait()
    found = json.loads(out)
    assert not found["local"] and len(found["workers"]) == 2 and len(found["links"]) == 1


def application() -> typer.Typer:
    app = typer.Typer()
    app.command("probe", context_settings=PASS_ON)(probe.probe)
    app.command("advise", context_settings=PASS_ON)(advise.advise)
    return app


def advised(*words: object) -> str:
    done = CliRunner().invoke(application(), ["advise", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_advice_from_a_probe(tmp_path: Path, train: Path) -> None:
    path = tmp_path / "probe.json"
    write_probe(path, made_up(2))  # 102 MB over 11 MB/s
    text = advised("--probe", path, "--top", 30, "--json", train, 5)
    record = json.loads(text)
    names = [one["name"] for one in record["top"]]
    by_name = {one["name"]: one for one in record["top"]}
    assert record["recommended"] == names[0] and "independent" not in names
    assert by_name["sync"]["wait_share"] > 0.9, "a dense update takes 9 s here, a step 0.3 s"
    assert by_name[names[0]]["efficiency"] > 2 * by_name["sync"]["efficiency"]
    assert by_name[names[0]]["codec"] == "tether" and by_name[names[0]]["replicas_agree"]
    assert record["command"] == f"taut run --workers 2 --strategy {by_name[names[0]]['strategy']} {train} 5"
    assert any("11 MB/s" in reason and "102 MB" in reason for reason in record["reasons"])
    assert advised("--probe", path, "--top", 30, "--json", train, 5) == text, "from the cache"
    shown = advised("--probe", path, "--top", 2, train, 5)
    assert "why:" in shown and "quality:" in shown and record["command"] in shown.replace("\n", "")


def test_misuse_is_told_before_anything_starts(tmp_path: Path, train: Path) -> None:
    def refused(*words: object) -> TautError:
        done = CliRunner().invoke(application(), [str(word) for word in words])
        assert isinstance(done.exception, TautError), done.output
        return done.exception

    path = tmp_path / "probe.json"
    write_probe(path, made_up(4, local=False))
    assert "no SCRIPT" in str(refused("probe"))
    assert "--listen" in str(refused("probe", "--listen", train))
    assert "did you mean 'train.py'" in str(refused("probe", tmp_path / "trian.py"))
    assert isinstance(refused("probe", "--steps", 0, "--runs-dir", tmp_path, train), Misuse)
    assert "between machines" in str(refused("advise", "--probe", path, "--verify", train))
    assert "none.json" in str(refused("advise", "--probe", tmp_path / "none.json", train))
    assert "at least 2" in str(refused("advise", "--probe", path, "--workers", 1, train))
    assert "--top 0" in str(refused("advise", "--probe", path, "--top", 0, train))
