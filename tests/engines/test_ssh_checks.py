"""What the checks of hosts decide, and the files that belong to a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.config.hosts import Host
from taut.engines.ssh import sources as sources_module
from taut.engines.ssh.session import Facts, Told, command
from taut.engines.ssh.sources import imported, sources_of
from taut.engines.ssh.verdict import Wanted, problems, unreachable, warnings
from taut.errors import Misuse

HERE = Wanted("1.0", 2, "2.13.0+cpu", {"train.py": "a" * 64}, {"data.npz": "d" * 64})
HOST = Host("b")
GOOD = Facts("b", 4, True, "1.0", 2, "2.13.0+cu126", "", ["a" * 64], ["d" * 64])


def wrong(host: Host = HOST, wanted: Wanted = HERE, **facts: Any) -> list[str]:
    return problems(host, msgspec.structs.replace(GOOD, **facts), wanted, "python3")


def test_a_host_like_this_one_can_train() -> None:
    assert wrong() == []
    assert warnings(GOOD, HERE) == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"taut": "", "wrong": "ModuleNotFoundError: No module named 'taut'"}, "pip install taut==1.0, or name a Python"),
        ({"protocol": 1}, "speaks protocol 1: expected 2, as taut 1.0 here does; install the same version on both"),
        ({"torch": ""}, "python3 has no torch"),
        ({"devices": "--devices 0: expected GPUs"}, "--devices 0: expected GPUs"),
        ({"sources": [""]}, "no file train.py there"),
        ({"sources": ["b" * 64]}, f"train.py there has SHA-256 {'b' * 16}, here it has {'a' * 16}"),
        ({"sources": []}, "no file train.py there"),
        ({"files": ["e" * 64]}, f"data.npz there has SHA-256 {'e' * 16}, here it has {'d' * 16}; copy it there"),
    ],
)
def test_what_keeps_a_host_from_training(facts: dict[str, Any], words: str) -> None:
    (line,) = wrong(**facts)
    assert words in line


def test_a_directory_and_a_module() -> None:
    (line,) = wrong(Host("b", directory="/srv/job"), directory=False)
    assert "no folder /srv/job; make it" in line
    (line,) = wrong(Host("b", directory="/srv/job"), sources=[""])
    assert "no file train.py in /srv/job; copy it there" in line
    (line,) = wrong(wanted=Wanted("1.0", 2, "2.13.0", module="job.train"), module=False)
    assert "no module job.train there" in line


def test_versions_that_differ_are_told() -> None:
    (taut,) = warnings(msgspec.structs.replace(GOOD, taut="1.1"), HERE)
    assert taut == "taut 1.1 there, 1.0 here, with the same protocol"
    (torch,) = warnings(msgspec.structs.replace(GOOD, torch="2.4.0"), HERE)
    assert "torch 2.4.0 there, 2.13.0+cpu here" in torch


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        (255, "ssh: Could not resolve hostname b: Name or service not known", "check the name"),
        (255, "ssh: connect to host b port 22: Connection timed out", "is the machine on"),
        (255, "root@b: Permission denied (publickey).", "ssh-copy-id ada@b"),
        (255, "No ED25519 host key is known\nHost key verification failed.", "connect once by hand"),
        (255, "something new", "something new; try by hand: ssh ada@b"),
        (255, "", "ssh failed; try by hand"),
        (127, "bash: line 1: python3: command not found", "python3 cannot be run there (bash: line 1"),
        (126, "", "python3 cannot be run there (exit code 126)"),
        (1, "Traceback\nOSError: disk", "python3 ended with exit code 1 (OSError: disk)"),
        (None, "", "no answer; try by hand: ssh ada@b python3 --version"),
    ],
)
def test_a_host_that_does_not_answer(code: int | None, said: str, words: str) -> None:
    assert words in unreachable(Host("b", user="ada"), code, said, "python3")


def test_an_old_python_is_told_with_its_version() -> None:
    text = unreachable(Host("b"), 0, "", "python3", "3.9.2")
    assert text.startswith("python3 there is Python 3.9.2: expected 3.11 or newer; name a Python that has taut")


def test_the_command_line_asks_nobody_and_quotes() -> None:
    words = command(Host("b", port=2222, python="/my env/python"), ["ssh", "-F", "x"], "python3")
    assert words[:3] == ["ssh", "-F", "x"]
    assert "BatchMode=yes" in words and "ConnectTimeout=10" in words
    assert words[-1].startswith("exec '/my env/python' -c 'import sys; ")
    assert words[-1].count("'") == 4


@given(st.binary(max_size=200))
def test_any_message_is_typed_or_refused(line: bytes) -> None:
    try:
        told = msgspec.json.decode(line, type=Told)
    except msgspec.MsgspecError:
        return
    assert isinstance(told.index, int)


def test_a_message_that_is_too_long_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({"reason": "x" * 5000}), type=Told)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"started": "1"}', type=Told)


def test_a_script_takes_along_what_it_imports_from_its_folder(tmp_path: Path) -> None:
    texts = {
        "train.py": "import os, net\nfrom lib.a import f\nimport missing\n",
        "net.py": "import helpers\n",
        "helpers.py": "import train\n",
        "unused.py": "",
        "lib/__init__.py": "",
        "lib/a.py": "from . import b\nfrom ..net import x\n",
        "lib/b.py": "def broken(:\n",
        "lib/c.py": "",
    }
    (tmp_path / "lib").mkdir()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = sources_of(tmp_path / "train.py")
    assert next(iter(found)) == "train.py"
    assert set(found) == set(texts) - {"unused.py", "lib/c.py"}
    assert found["net.py"] == b"import helpers\n"


def test_a_script_with_too_much_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources_module, "MAX_NBYTES", 10)
    (tmp_path / "train.py").write_text("import os # and more\n")
    with pytest.raises(Misuse, match=r"directory in hosts\.toml"):
        sources_of(tmp_path / "train.py")


@given(st.binary(max_size=60))
def test_any_bytes_have_imports_or_none(text: bytes) -> None:
    assert all(isinstance(name, str) for name in imported(text, "a/b.py"))
