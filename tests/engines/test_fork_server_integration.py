"""Engines of one run on one machine that fork their workers from the same imports."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from test_local_integration import exits, until_gone, until_started

from taut.engines.fork_server import shared_zygote
from taut.engines.local import LocalEngine

SCRIPT = """
import os, sys
assert "torch" in sys.modules
print(os.environ["OWN"], os.getcwd(), flush=True)
open(sys.argv[1]).read()
"""


def engine(folder: Path, name: str, token: str) -> LocalEngine:
    (logs := folder / name).mkdir()
    script, fifo = folder / "script.py", folder / f"{name}.fifo"
    script.write_text(SCRIPT)
    os.mkfifo(fifo)
    return LocalEngine(script, [str(fifo)], 1, {"OWN": name}, log_dir=logs, shared_by=token)


def grandparent(engine: LocalEngine) -> psutil.Process:
    """The server: parent of the zygote that is the worker's parent."""
    (pid,) = engine.pids
    return psutil.Process(pid).parents()[1]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", path)
        yield Path(path)


def test_engines_of_a_run_share_imports_and_nothing_else(tmp_path: Path, folder: Path) -> None:
    first, second, third = (engine(tmp_path, name, "token") for name in ("first", "second", "third"))
    try:
        for each in (first, second, third):
            each.start()
            until_started(each, 1)
        server = grandparent(first)
        assert server == grandparent(second) == grandparent(third)
        assert server.pid != os.getpid()
        assert os.getpid() != server.ppid()  # it outlives the process that started it
        assert (next(folder.glob("taut-zygotes-*")).stat().st_mode & 0o777) == 0o700
        first.kill()
        assert [each.reason for each in exits(first)] == ["killed by SIGKILL"]
        third_pids = [*third.pids, psutil.Process(next(iter(third.pids))).ppid()]
        third.close()
        until_gone(third_pids)
        assert not second.poll()  # it goes on
        (tmp_path / "second.fifo").write_text("go on")
        assert [each.reason for each in exits(second)] == ["finished"]
    finally:
        for each in (first, second, third):
            each.close()
    assert (tmp_path / "second" / "worker-0.log").read_text() == f"second {os.getcwd()}\n"
    until_gone([server.pid])
    assert not list(folder.glob("taut-zygotes-*"))


@pytest.mark.long
def test_a_module_that_starts_threads_is_not_forked(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    (tmp_path / "threaded.py").write_text(thread)
    (tmp_path / "script.py").write_text("print('trained')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    settings = {"log_dir": tmp_path, "shared_by": "token", "preload": ["threaded"]}
    fresh = LocalEngine(tmp_path / "script.py", [], 1, {}, **settings)
    fresh.start()
    try:
        assert [each.reason for each in exits(fresh)] == ["finished"]
        assert "starting fresh processes" in (tmp_path / "zygote.log").read_text()
    finally:
        fresh.close()


def test_a_folder_of_others_is_not_entered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taut.engines.fork_server._start_server", lambda *_: None)
    monkeypatch.setattr("taut.engines.fork_server.FOUND_S", 0.0)
    with open(folder / "log", "ab") as log:
        assert shared_zygote("token", {}, log, modules=(), kernels=()) is None  # a server that does not come
        next(folder.glob("taut-zygotes-*")).chmod(0o755)
        assert shared_zygote("token", {}, log, modules=(), kernels=()) is None
