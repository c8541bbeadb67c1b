"""``--dashboard`` and ``taut dashboard``: what is given, and what cannot work; nothing is begun then."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from taut.cli.commands import dashboard as command
from taut.cli.commands.dashboard import WithDashboard, with_value
from taut.cli.main import app
from taut.config import resolve
from taut.errors import Misuse
from taut.specs import parse_address
from taut.supervisor.storage.store_writer import StoreWriter
from taut.supervisor.view import Outcome

VALUED = {"--dashboard", "-n", "--workers"}


def taut(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("--dashboard train.py", "--dashboard 0 train.py"),
        ("--dashboard", "--dashboard 0"),
        ("--dashboard --json train.py", "--dashboard 0 --json train.py"),
        ("--dashboard 8080 train.py", "--dashboard 8080 train.py"),
        ("--dashboard 0.0.0.0:8080 train.py", "--dashboard 0.0.0.0:8080 train.py"),
        ("--dashboard=8080 train.py", "--dashboard=8080 train.py"),
        ("-n 4 --dashboard train1", "-n 4 --dashboard 0 train1"),
        ("-n4 --dashboard x.py 7", "-n4 --dashboard 0 x.py 7"),
        ("train.py --dashboard", "train.py --dashboard"),
        ("-- --dashboard", "-- --dashboard"),
        ("-n --dashboard", "-n --dashboard"),  # the value of -n, wrong as it is
    ],
)
def test_the_flag_needs_no_value(given: str, parsed: str) -> None:
    assert with_value(given.split(), VALUED) == parsed.split()


def test_the_commands_know_which_flags_take_values(tmp_path: Path) -> None:
    """``--workers`` takes one, ``--json`` does not: what is after --dashboard is still found."""
    with pytest.raises(Misuse, match=r"script '.*absent\.py'"):
        taut("run", "--workers", "2", "--json", "--dashboard", str(tmp_path / "absent.py"))
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name in ("run", "supervisor", "resume"):
        assert isinstance(commands[name], WithDashboard)
        assert "--dashboard" in {flag for each in commands[name].params for flag in each.opts}


@pytest.mark.parametrize("given", ["x", ":80", "1:2:3", "65536", "-1", "", "a b:1", "http://a:1", "[]:1", False, 1.5])
def test_a_place_that_is_none(given: object) -> None:
    with pytest.raises(Misuse, match="this machine alone"):
        parse_address(given)


def test_the_setting(tmp_path: Path) -> None:
    (tmp_path / "taut.toml").write_text("[run]\ndashboard = true\n")
    assert resolve({}, environ={}, cwd=tmp_path).dashboard == "127.0.0.1:0"
    assert resolve({}, environ={"TAUT_DASHBOARD": "[::1]:80"}, cwd=tmp_path).dashboard == "[::1]:80"
    settings = resolve({"dashboard": "0.0.0.0:80"}, environ={}, cwd=tmp_path)
    assert settings.dashboard == "0.0.0.0:80"
    assert "dashboard" not in settings.shared(), "it is not the workers' business"


def a_script(folder: Path) -> str:
    (folder / "train.py").write_text("raise SystemExit(0)\n")
    return str(folder / "train.py")


def test_a_port_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Misuse, match="a free port; leave the port out"):
        taut("run", "--dashboard", str(taken.getsockname()[1]), a_script(tmp_path))
    with pytest.raises(Misuse, match="an address of this host"):
        taut("run", "--dashboard", "192.0.2.1:0", a_script(tmp_path))
    assert not (tmp_path / "taut-runs").exists(), "nothing was begun"


def test_without_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    there = importlib.util.find_spec
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "uvicorn" else there(name))
    with pytest.raises(Misuse, match=r"--dashboard without uvicorn: .*pip install 'taut\[dashboard\]'"):
        taut("run", "--dashboard", a_script(tmp_path))
    assert not (tmp_path / "taut-runs").exists()


def a_run(folder: Path) -> Path:
    store = StoreWriter(folder / "taut-runs" / "owl", "owl")
    store.begin(100.0, "taut run x.py", {}, {})
    store.finished(104.0, Outcome("finished", 0, True, True, "abc", Path("m")))
    store.close()
    return folder / "taut-runs" / "owl"


def test_a_link_goes_to_a_terminal_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not into a file or a pipe: `open $(taut dashboard RUN --link)` would show the secret to `ps`."""
    monkeypatch.chdir(tmp_path)
    a_run(tmp_path)
    with pytest.raises(Misuse, match="expected a terminal"):
        taut("dashboard", "owl", "--link")


def test_a_run_that_is_served_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = a_run(tmp_path)
    address = {"url": "http://127.0.0.1:5/", "host": socket.gethostname(), "pid": os.getpid()}
    (folder / "dashboard.json").write_text(json.dumps(address))
    assert "dashboard: http://127.0.0.1:5/" in taut("dashboard", "owl")
    with pytest.raises(Misuse, match="did you mean 'owl'"):
        taut("dashboard", "olw")
    for left in ('{"url": 1}', "[]", "{", json.dumps({**address, "pid": 2**22 + 1})):
        (folder / "dashboard.json").write_text(left)
        assert command._served_already(folder) is None, "it is gone"
