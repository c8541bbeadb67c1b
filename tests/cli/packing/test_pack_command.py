"""``taut pack`` and what runs its jobs: settings and arguments go along, and nothing runs that was changed since."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Command
from job_files import CONTENTS, job
from typer.testing import CliRunner, Result

from taut.cli.main import app
from taut.cli.options import Given
from taut.cli.packing import machine_code
from taut.cli.packing.job_file import read_job
from taut.cli.packing.unpack import opened_job, settings_of, unpacked
from taut.config import Settings
from taut.errors import Misuse

TRAIN = """
import sys
import numpy as np
import taut
from helpers.shapes import COUNT
w = np.zeros(3, np.float32)
with taut.join_vector(w) as worker:
    for x in worker.batches(np.ones((COUNT, 3), np.float32), batch_size=4, epochs=2):
        w += 0.1
        worker.exchange()
worker.print("trained with", sys.argv[1:])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "shapes.py").write_text("COUNT = 32\n")
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine_code, "compiler", str)  # as without Cython: tests/extras/compile has it
    return tmp_path


def pack(*words: object) -> Result:
    return CliRunner().invoke(app, ["pack", *map(str, words)])


def refusal(result: Result) -> str:
    assert isinstance(result.exception, Misuse)
    return str(result.exception)


def test_settings_and_arguments_go_along(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "taut.toml").write_text('[run]\nstrategy = "sync"\n')
    made = pack("train.py", "-o", "out.taut", "--workers", 3, "--json", "--", "--epochs", 5)
    assert made.exit_code == 0, made.output
    record = json.loads(made.stdout)
    assert record["files"] == ["helpers/shapes.py", "train.py"] and record["signed_by"] is None
    assert record["kind"] == "source" and "numpy" in record["requirements"]
    (folder / "taut.toml").unlink()
    found = opened_job(folder / "out.taut", None)
    assert found is not None and found.manifest.args == ["--epochs", "5"] and found.checksum == record["checksum"]
    settings = settings_of(Given({"seed": 4}), found)
    assert (settings.workers, settings.strategy, settings.seed, settings.codec) == (3, "sync", 4, "tether")
    assert (settings.sources["workers"], settings.sources["seed"], settings.sources["codec"]) == (
        "job",
        "flag",
        "default",
    )
    monkeypatch.setenv("TAUT_WORKERS", "7")
    assert settings_of(Given({}), found).workers == 7, "what is said here goes before what the job says"


def test_a_job_is_unpacked_once_and_found_changed(tmp_path: Path) -> None:
    found = read_job(job(tmp_path / "job.taut"))
    settings = Settings(runs_dir=str(tmp_path / "runs"))
    script = unpacked(found, settings)
    assert script.name == "train.py" and found.checksum[:32] in str(script)
    files = {file.relative_to(script.parent).as_posix(): file.read_bytes() for file in script.parent.rglob("*.*")}
    assert files == CONTENTS and unpacked(found, settings) == script
    assert [path.name for path in script.parent.parent.iterdir()] == [script.parent.name], "nothing is left beside it"
    (script.parent / "helpers" / "__pycache__").mkdir()
    (script.parent / "helpers" / "__pycache__" / "one.pyc").touch()
    assert unpacked(found, settings) == script
    (script.parent / "numpy.py").touch()
    with pytest.raises(Misuse, match="remove the folder"):
        unpacked(found, settings)
    (script.parent / "numpy.py").unlink()
    script.write_bytes(b"import helpers.two\n")
    with pytest.raises(Misuse, match="unchanged"):
        unpacked(found, settings)
    shutil.rmtree(script.parent)
    assert unpacked(found, settings).read_bytes() == CONTENTS["train.py"]
    with pytest.raises(Misuse, match="taut worker --join"):
        unpacked(found, Settings(engine="ssh"))


def test_jobs_for_another_place_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.taut"
    with pytest.raises(Misuse, match=r"byte code of Python 2\.7\.18"):
        opened_job(job(path, bytecode="03f30d0a", python="2.7.18"), None)
    with pytest.raises(Misuse, match=r"machine code for \.cp27-mswin"):
        opened_job(job(path, machine=".cp27-mswin"), None)
    with pytest.raises(Misuse, match=r"pip install 'not-there==1\.0'"):
        opened_job(job(path, requirements={"not-there": "1.0"}), None)
    opened_job(job(path, requirements={"numpy": "0.1"}, taut="9.9"), None)
    assert "instead of 9.9, numpy" in " ".join(capsys.readouterr().err.split())


def test_without_a_signature_nothing_runs_where_one_is_required(tmp_path: Path, folder: Path) -> None:
    trusted = tmp_path / "trusted.pub"
    trusted.write_text(f"taut-public-key {'ab' * 32} me\n")
    path = job(tmp_path / "job.taut")
    for script, why in ((path, "which is not signed"), (folder / "train.py", "expected a packed job")):
        for command in (["run"], ["worker", "--join", "127.0.0.1:1"]):
            ended = CliRunner().invoke(app, [*command, "--require-signature", str(trusted), str(script)])
            assert why in refusal(ended)
    trusted.write_text("# nobody\n")
    with pytest.raises(Misuse, match="without a key"):
        opened_job(path, trusted)
    trusted.write_text("taut-public-key 12\n")
    with pytest.raises(Misuse, match="line 1"):
        opened_job(path, trusted)
    assert not (tmp_path / "taut-runs").exists()


def test_byte_code_runs_without_source(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "byte code of Python" in pack("train.py", "--no-source").stderr
    found = read_job(folder / "train.taut")
    assert set(found.contents) == {"train.pyc", "helpers/shapes.pyc"}
    assert not any(b"worker.batches(" in data for data in found.contents.values())
    script = unpacked(found, Settings(runs_dir=str(tmp_path / "runs")))
    monkeypatch.syspath_prepend(str(script.parent))
    monkeypatch.setattr(sys, "argv", ["train.pyc"])
    monkeypatch.delitem(sys.modules, "helpers", raising=False)
    names = runpy.run_path(str(script), run_name="__main__")
    assert names["COUNT"] == 32 and names["worker"].samples == 64
    for name in ("helpers", "helpers.shapes"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_requests_that_cannot_be_met(folder: Path) -> None:
    assert "expected SCRIPT" in refusal(pack())
    assert "did you mean" in refusal(pack("trian.py"))
    assert "a name that ends with .taut" in refusal(pack("train.py", "-o", "job.zip"))
    assert "a folder that exists" in refusal(pack("train.py", "-o", "none/job.taut"))
    (folder / "key").write_text("nonsense\n")
    assert "which cannot be read" in (told := refusal(pack("train.py", "--key", "none"))) or "taut[sign]" in told
    ended = pack("train.py", "--key", "key")
    assert "taut-signing-key HEX" in refusal(ended) or "taut[sign]" in refusal(ended)
    assert not (folder / "train.taut").exists()


def test_a_job_trains(folder: Path, tmp_path: Path) -> None:
    assert pack("train.py", "--no-source", "--workers", 2, "--", "--first").exit_code == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(folder / "train.taut", elsewhere / "train.taut")
    shutil.rmtree(folder / "helpers")
    with Command(elsewhere, "run", "train.taut", "--second", program="forked") as command:
        assert command.end() == 0, command.text
    assert "trained with ['--first', '--second']" in command.text
    assert "train.taut: train.pyc (byte code of Python" in command.text and "workers=2 (job)" in command.text
    assert subprocess.run(["ls", elsewhere], capture_output=True, text=True, check=True).stdout.split() == [
        "taut-runs",
        "train.taut",
    ]
