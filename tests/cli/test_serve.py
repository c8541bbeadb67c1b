"""``taut serve``: the tiers of a model in processes of their own, and misuse."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from forked_zygotes import taut_command
from typer.testing import CliRunner

from taut.cli.main import app
from taut.errors import Misuse

MODEL = """
import torch
from torch import nn
from taut.tiers import Signs, Tiers

def build():
    torch.manual_seed(0)
    return Tiers([nn.Sequential(nn.Linear(3, 8), Signs())], [nn.Linear(8, 2)],
                 edge=nn.Linear(8, 4), edge_exit=nn.Linear(4, 2), cloud=nn.Linear(4, 4), cloud_exit=nn.Linear(4, 2))

def other():
    return nn.Linear(1, 1)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "tiers.py").write_text(MODEL)
    np.save(tmp_path / "views.npy", np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32))
    for name in ("edge", "cloud"):
        assert CliRunner().invoke(app, ["token", "keys", str(tmp_path / name)]).exit_code == 0
    return tmp_path


@contextmanager
def serving(place: Path, tier: str, *more: str) -> Iterator[str]:
    words = [*taut_command(), "serve", "tiers.py:build", "--tier", tier, "--keys", f"{tier}/keys", *more]
    with subprocess.Popen(words, cwd=place, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = re.search(r"tcp://\S+\d", process.stderr.readline())
            assert found is not None
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
            process.wait(60)
    assert "samples answered: edge" in rest and process.returncode == 0


def answered(place: Path, *more: str) -> tuple[list[list[str]], str]:
    words = [*taut_command(), "serve", "tiers.py:build", "--tier", "device", "--views", "views.npy", *more]
    done = subprocess.run(words, cwd=place, check=True, capture_output=True, text=True, timeout=120)
    return [line.split("\t") for line in done.stdout.splitlines()], done.stderr


def test_a_device_asks_the_edge_which_asks_the_cloud_integration(place: Path) -> None:
    with serving(place, "cloud") as cloud:
        above = ("--up", cloud, "--token-file", "cloud/token", "--sure", "0")
        with serving(place, "edge", *above) as edge:
            rows, told = answered(place, "--up", edge, "--token-file", "edge/token", "--sure", "0")
    assert [row[0] for row in rows] == [str(number) for number in range(20)]
    assert {row[2] for row in rows} == {"cloud"}
    assert re.fullmatch(r"20 samples: cloud 100%; \d+\.\d bytes a sample sent, headers included\n", told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tiers.py:build", "--tier", "device"], "--tier device without --views"),
        (["tiers.py:build", "--tier", "device", "--views", "tiers.py"], "an array of numbers, as numpy.save writes it"),
        (["tiers.py:build", "--tier", "device", "--views", "views.npy", "--device", "1"], "--device 1: expected 0 to 0"),
        (["tiers.py:build", "--tier", "edge"], "--tier edge without --keys"),
        (["tiers.py:build", "--tier", "edge", "--up", "tcp://host:1"], "--up without --token-file"),
        (["tiers.py:build", "--tier", "edge", "--sure", "2"], "--sure 2.0: expected an entropy from 0"),
        (["tiers.py:other", "--tier", "edge"], "which returns a Linear: expected a taut.tiers.Tiers"),
        (["tiers.py:none", "--tier", "edge"], "expected a function 'none'"),
        (["none.py:build", "--tier", "edge"], "with a file that exists"),
        (["tiers.py:build", "--tier", "edge", "--weights", "views.npy"], "expected the weights of tiers.py:build"),
        (["tiers.py:build", "--tier", "edge", "--weights", "none"], "--weights none, which cannot be read"),
    ],
)
def test_misuse(words: list[str], told: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    done = CliRunner().invoke(app, ["serve", *words])
    assert isinstance(done.exception, Misuse) and told in str(done.exception)


def test_a_device_alone_answers_by_itself(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    done = CliRunner().invoke(app, ["serve", "tiers.py:build", "--tier", "device", "--views", "views.npy"])
    assert done.exit_code == 0, done.exception
    assert sum("\tdevice\t" in line for line in done.output.splitlines()) == 20
