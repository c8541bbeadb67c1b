"""Executables: the shell script at their beginning, with a small program in place of Python, and what is taken along.

`make test-executable` makes a whole one and runs it in a bare root.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from taut.cli.main import app
from taut.cli.packing import environment
from taut.cli.packing.executable import HEADER_NBYTES, write_executable
from taut.errors import Misuse

PYTHON = """#!/bin/sh
[ "$1" = -I ] && exit 0
shift 3  # -P -m MODULE
for word in "$@"; do echo "word $word"; done
env | grep -E '^(PYTHON|LD_LIBRARY)'
"""


def made(folder: Path, python: str = PYTHON) -> Path:
    """Write an executable with this program for its Python."""
    (folder / "python").write_text(python)
    (folder / "words").write_bytes(b"many words " * 1000)
    files = {"bin/python3": folder / "python", "job.taut": folder / "words", "lib/words.txt": folder / "words"}
    write_executable(folder / "job", files, "2.36", "1 GB")
    return folder / "job"


def begun(executable: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    place = {"PATH": os.environ["PATH"], "HOME": str(executable.parent / "home")}
    pipe = subprocess.PIPE
    return subprocess.Popen([executable, *words], env=place | environment, stdout=pipe, stderr=pipe, text=True)


def ran(executable: Path, *words: str, **environment: str) -> tuple[int, str, str]:
    process = begun(executable, *words, **environment)
    out, error = process.communicate()
    return process.returncode, out, error


def unpacked(folder: Path) -> list[str]:
    return os.listdir(folder / "home" / ".cache" / "taut")


def test_words_and_libraries_reach_python(tmp_path: Path) -> None:
    executable = made(tmp_path)
    foreign = {"PYTHONPATH": "/elsewhere", "PYTHONHOME": "/elsewhere", "LD_LIBRARY_PATH": "/mine"}
    code, out, error = ran(executable, "--workers", "a  b", "*", **foreign)
    (checksum,) = unpacked(tmp_path)
    folder = tmp_path / "home" / ".cache" / "taut" / checksum
    assert (code, error) == (0, f"unpacking 1 GB into {folder}, once\n")
    lines = out.splitlines()
    assert lines[:5] == [f"word {word}" for word in (f"{folder}/job.taut", executable, "--workers", "a  b", "*")]
    assert sorted(lines[5:]) == [f"LD_LIBRARY_PATH={folder}/system:/mine", "PYTHONNOUSERSITE=1"]
    assert (folder / "lib" / "words.txt").read_bytes() == (tmp_path / "words").read_bytes()
    assert folder.stat().st_mode & 0o077 == 0
    assert ran(executable)[2] == "", "it unpacked itself again"


def test_only_one_of_many_at_once_leaves_a_folder(tmp_path: Path) -> None:
    executable = made(tmp_path)
    processes = [begun(executable, str(number)) for number in range(6)]
    told = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * 6, told
    assert all(f"word {number}\n" in out for number, (out, _) in enumerate(told))
    assert len(unpacked(tmp_path)) == 1


@pytest.mark.parametrize("part", [0.3, 0.8, 0.99])
def test_a_part_of_one_does_not_run(tmp_path: Path, part: float) -> None:
    executable = made(tmp_path)
    data = executable.read_bytes()
    executable.write_bytes(data[: HEADER_NBYTES + int(part * (len(data) - HEADER_NBYTES))])
    code, out, error = ran(executable)
    assert (code, out, unpacked(tmp_path)) == (1, "", []) and "it is damaged" in error


def test_a_changed_one_does_not_run(tmp_path: Path) -> None:
    executable = made(tmp_path)
    data = bytearray(executable.read_bytes())
    data[(HEADER_NBYTES + len(data)) // 2] ^= 1
    executable.write_bytes(data)
    code, out, error = ran(executable)
    assert (code, out, unpacked(tmp_path)) == (1, "", []) and "it is damaged" in error


def test_a_python_that_does_not_run_here_is_not_kept(tmp_path: Path) -> None:
    code, out, error = ran(made(tmp_path, "#!/bin/sh\nexit 1\n"))
    assert (code, out, unpacked(tmp_path)) == (1, "", []) and "it takes glibc, and was made with version 2.36" in error


def test_other_places(tmp_path: Path) -> None:
    executable = made(tmp_path)
    assert ran(executable, TAUT_UNPACK=str(tmp_path / "a"))[0] == 0 and len(os.listdir(tmp_path / "a")) == 1
    assert ran(executable, XDG_CACHE_HOME=str(tmp_path / "b"))[0] == 0 and os.listdir(tmp_path / "b") == ["taut"]
    code, _, error = ran(executable, TAUT_UNPACK=str(executable / "below"))
    assert code == 1 and "cannot be written: TAUT_UNPACK=FOLDER names another folder" in error
    code, _, error = ran(executable, PATH=str(tmp_path))
    assert code == 1 and "unpacks itself with `uname`, which is not on this machine" in error


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    once = made(tmp_path).read_bytes()
    os.utime(tmp_path / "words", (0, 0))
    assert made(tmp_path).read_bytes() == once
    assert made(tmp_path).stat().st_mode & 0o100


# ------------------------------------------------------------------------------------------- what is taken along


def test_packages_are_those_that_the_job_and_taut_need() -> None:
    found = environment.packages(["scikit_learn"])
    assert {"taut", "torch", "numpy", "sympy", "pyzmq", "scikit-learn", "scipy", "joblib"} <= set(found)
    assert not {"pytest", "hypothesis", "ruff", "scikit-learn"} & set(environment.packages([]))


def test_a_python_without_packages() -> None:
    found = environment.files({})
    (python,) = [path for path in found if path.startswith("bin/")]
    assert found[python].is_absolute() and not found[python].is_symlink()
    assert any(path.endswith("/os.py") for path in found) and any("/lib-dynload/" in path for path in found)
    assert not [path for path in found if "site-packages" in path or "__pycache__" in path or "tkinter" in path]
    assert not [path for path in found if path.startswith("system/libc.") or "ld-linux" in path]


def installed(folder: Path, files: Mapping[str, str]) -> None:
    """Write the metadata of a package named ``other``."""
    info = folder / "other-1.dist-info"
    info.mkdir()
    for name, text in {"METADATA": "Metadata-Version: 2.1\nName: other\nVersion: 1\n", **files}.items():
        (info / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "of which no list of files is kept"),
        ({"direct_url.json": json.dumps({"dir_info": {"editable": True}}), "RECORD": ""}, "installed with -e"),
    ],
)
def test_packages_that_cannot_be_copied_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Mapping[str, str], said: str
) -> None:
    installed(tmp_path, files)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = environment.packages(["Other"])["other"]
    with pytest.raises(Misuse, match=said):
        environment.files({"other": found})


def test_no_file_outside_the_folder_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    installed(folder, {"RECORD": "other.py,,\n../command,,\n__pycache__/other.cpython-311.pyc,,\ngone.py,,\n"})
    for name in ("other.py", "../command"):
        (folder / name).write_text("")
    monkeypatch.syspath_prepend(str(folder))
    found = environment.files({"other": environment.packages(["other"])["other"]})
    assert [Path(path).name for path, file in found.items() if file.is_relative_to(tmp_path)] == ["other.py"]


# --------------------------------------------------------------------------------------------------- the command


def pack(*words: object) -> Result:
    return CliRunner().invoke(app, ["pack", *map(str, words)])


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").write_text(PYTHON)
    monkeypatch.setattr(environment, "files", lambda _: {"bin/python3": tmp_path / "python"})
    (tmp_path / "train.py").write_text("import numpy\n")
    return tmp_path / "train.py"


def test_the_command_writes_a_program(script: Path, tmp_path: Path) -> None:
    said = pack("train.py", "--executable", "--json")
    assert said.exit_code == 0, said.output
    told = json.loads(said.stdout)
    assert told["job"] == "train" and any(each.startswith("torch ") for each in told["carried"])
    code, out, _ = ran(tmp_path / "train", "--workers", "2")
    assert code == 0 and out.splitlines()[2:4] == ["word --workers", "word 2"]
    said = pack("train.py", "--executable", "-o", "job")
    assert "run it:    ./job" in said.stderr and "Python 3." in said.stderr


def test_wrong_names_and_systems(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script.parent / "folder").mkdir()
    for words, expected in {("-o", "job.taut"): "try -o job", ("-o", "folder"): "which is a folder"}.items():
        assert expected in str(pack("train.py", "--executable", *words).exception)
    monkeypatch.setattr(platform, "libc_ver", lambda: ("musl", ""))
    assert "Linux without glibc" in str(pack("train.py", "--executable").exception)
