"""The commands of docs/ssh.md run as they are written, with the hosts, Python and addresses of the lab in their place."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from lab import Lab, until

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "ssh.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]
(HOSTS,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)


def of_the_lab(text: str, lab: Lab) -> str:
    told = {
        "/opt/taut/bin/python": sys.executable,
        "10.0.0.3": "10.79.0.3",
        '"ada"': '"root"',
        "/srv/job": f"{lab.folder}/srv",
    }
    for ours, theirs in told.items():
        text = text.replace(ours, theirs)
    return text


def test_the_page_has_commands() -> None:
    assert [line.split()[:3] for line in COMMANDS] == [["taut", "run", "--hosts"]] * 3


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: line[:60])
def test_a_command_of_the_page(lab: Lab, tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    there = lab.folder / "srv"
    there.mkdir(exist_ok=True)
    (there / "digits.py").write_bytes((ROOT / "examples/digits.py").read_bytes())
    data = there / "data.npz"
    data.write_bytes(b"data")
    (tmp_path / "hosts.toml").write_text(of_the_lab(HOSTS, lab))
    words = shlex.split(of_the_lab(line, lab).replace("data.npz", str(data)))
    with lab.run(tmp_path, *words[1:]) as run:
        assert run.end() == 0, run.text
    model = re.findall(r"model: (\S+)", run.text)[-1]
    assert Path(model).is_file()
    assert not lab.files()
    until(lab.clean)
