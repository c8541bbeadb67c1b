"""A package elsewhere with a strategy, codec, topology, transport and engine: installed, and used by commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "adviser"))
from forked_zygotes import taut_command
from probes import probe as made_up_probe

from taut.adviser.record import write_probe

PACKAGE = Path(__file__).parents[1] / "plugin_package"
JOB = Path(__file__).with_name("job.py")
ALL = ("--strategy", "often:every=2^1", "--topology", "ladder")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package as pip leaves it."""
    folder = tmp_path_factory.mktemp("plugin")
    copytree(PACKAGE, folder / "source")
    how = ("install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", folder / "site")
    subprocess.run([sys.executable, "-m", "pip", *how, folder / "source"], check=True, timeout=100)
    return folder / "site"


def seeing(site: Path) -> dict[str, str]:
    """Return an environment in which the package is found."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TAUT_")}
    return environment | {"PYTHONPATH": str(site)}


def taut(site: Path, folder: Path, *words: object, code: int = 0, fresh: bool = False) -> str:
    """Return what a command says, in a process that is ``fresh``, or a fork of one that has imported taut."""
    start = [sys.executable, "-m", "taut.cli.main"] if fresh else taut_command()
    command = [*start, *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=seeing(site), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_lists_have_the_names(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(taut(installed, tmp_path, "strategies", "--json"))["strategies"]
    (often,) = (one for one in listed if one["name"] == "often")
    assert often["parameters"]["every"] == 2 and often["does"].startswith("Local SGD that averages after every few steps")
    assert "inturn" in next(one for one in listed if one["name"] == "sync")["codecs"]
    codecs = json.loads(taut(installed, tmp_path, "codecs", "--no-measure", "--json"))["codecs"]
    assert next(one for one in codecs if one["name"] == "inturn")["bits"] == 8.0
    ladder = json.loads(taut(installed, tmp_path, "topology", "ladder", "-n", "6", "--json"))
    assert ladder["neighbours"]["2"] == [0, 3, 4] and ladder["edges"] == 7


@pytest.mark.timeout(300)
def test_a_run_with_all_five(installed: Path, tmp_path: Path) -> None:
    where = ("--json", "--name", "mine", "--runs-dir", tmp_path, "--workers", 2)
    ours = ("--engine", "plain", "--transport", "tunnel", "--topology", "ladder", "--codec", "inturn:parts=4")
    words = ("--strategy", "often for 4 steps, then sync", *where, *ours, JOB, "--epochs", 1, "--samples", 400)
    found: dict[str, Any] = json.loads(taut(installed, tmp_path, "run", *words, fresh=True))
    assert found["state"] == "finished" and found["settings"]["strategy"] == "often for 4 steps, then sync"
    assert found["settings"]["topology"] == "ladder" and found["settings"]["codec"].startswith("inturn:parts=4")
    assert (tmp_path / "mine" / "plain.log").read_text() == "started by taut_example\n"


def test_simulations(installed: Path, tmp_path: Path) -> None:
    sizes = ("--json", "--timing-only", "--steps", 10, "--workers", 6)
    for words in (ALL, ("--strategy", "async", "--codec", "inturn")):
        assert json.loads(taut(installed, tmp_path, "simulate", *sizes, *words, "digits"))["samples_per_s"] > 0.0


@pytest.mark.timeout(300)
def test_a_comparison(installed: Path, tmp_path: Path) -> None:
    words = ("--simulate", "--json", "--workers", 2, "--seeds", 1, "--out", tmp_path / "out")
    named = ("--strategies", "often,sync", "--codecs", "dense,inturn:parts=4", "--topologies", "ladder")
    said = json.loads(taut(installed, tmp_path, "compare", *words, *named, JOB, "--epochs", 1, "--samples", 80))
    runs = {(one["strategy"], one["topology"], one["codec"].partition(":")[0]) for one in said["runs"]}
    assert {("often", "ladder", "dense"), ("sync", "ladder", "inturn")} <= runs


def test_advice_tries_them(installed: Path, tmp_path: Path) -> None:
    write_probe(tmp_path / "probe.json", made_up_probe(4, parameters=10_000))
    words = ("--probe", tmp_path / "probe.json", "--top", 60, "--json")
    said = json.loads(taut(installed, tmp_path, "advise", *words, JOB))
    assert "--strategy often" in json.dumps(said)
    code = "from taut.adviser.candidates import candidates; print(*(one.name for one in candidates(6)), sep='\\n')"
    done = subprocess.run(taut_command(code), env=seeing(installed), capture_output=True, text=True, check=True)
    assert {"often", "dpsgd ladder", "async inturn"} <= set(done.stdout.splitlines())


def test_without_the_package_its_names_are_unknown(tmp_path: Path) -> None:
    said = taut(tmp_path, tmp_path, "run", "--strategy", "often", JOB, code=2)
    assert "strategy 'often': expected one of sync, ssp, async" in said


def test_a_broken_package_is_named(installed: Path, tmp_path: Path) -> None:
    copytree(installed, tmp_path / "site")
    (tmp_path / "site" / "taut_example" / "strategy.py").write_text("import nothing_like_this\n")
    said = taut(tmp_path / "site", tmp_path, "run", "--strategy", "often", JOB, code=2, fresh=True)
    assert "strategy 'often' of the package taut-example 1.0" in said and "nothing_like_this" in said
    assert "pip uninstall taut-example" in said
